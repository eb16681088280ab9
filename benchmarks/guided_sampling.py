"""Attention guided by itself on Facebook pages and Cora: error of each layer beside uniform sampling's, and accuracy.

A GAT is trained as by `cora.py` and `facebook_pages.py`. Then each layer attends 5 or 10 in-edges of each node in place
of all (self loops come on top, as in training), picked uniformly, by top attention and by importance, once leaving the
others out and once with their weight on the mean of the neighbours. Reported are the relative error of the layer's
output (Frobenius norm, over all nodes; every layer gets the exact inputs), the flatness of its attention (effective
number of in-edges by their number, in rows of more than the fan-out) and the test accuracy with all layers sampled.

    python benchmarks/guided_sampling.py --data ../shared/data --seeds 0 1 2
    python benchmarks/guided_sampling.py --time   # a layer on a large synthetic graph: what it costs, what it saves
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from common import alternate, machine, report, table
from graphs import named
from sage_attention import (
    GatScores,
    Graph,
    attention_error,
    gat_attention,
    guided_attention,
    neighbour_means,
    sample_one_hop,
)
from sage_attention.inference import ModelConfig, normalized, project
from sage_attention.recipes.dataset import load_dataset, load_npz_dataset
from sage_attention.recipes.node import simple_graph
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.trainer import Trainer, TrainingOptions

STRATEGIES = ("uniform", "top_attention", "importance")


def trained(name: str, folder: Path, seed: int, threads: int):
    """(data, graph, normalised features, model) of one run; options are those of the data's own benchmark."""
    if name == "Cora":
        data = load_npz_dataset(folder / "cora.npz", seed=seed)
        config = ModelConfig(data.features.shape[1], data.class_names, normalize="row")
        options = TrainingOptions(
            epochs=1000, patience=100, batch_size=len(data.train), fan_outs=(-1, -1), learning_rate=0.005,
            weight_decay=5e-4, dropout=0.6, attention_dropout=0.6, seed=seed, num_threads=threads,
        )  # fmt: skip
    else:
        files = [folder / "facebook_pages" / file for file in ("edges.csv", "features.json", "target.csv")]
        data = load_dataset(*files, undirected=True, seed=seed)
        config = ModelConfig(num_features=data.features.shape[1], class_names=data.class_names)
        options = TrainingOptions(seed=seed, num_threads=threads, epochs=40, patience=40)
    features = normalized(data.features, config.normalize)
    trainer = Trainer(config, options, data, simple_graph(data), features)
    with Progress(options.epochs, quiet=True) as progress:
        trainer.run(progress)
    return data, trainer.graph, features, trainer.classifier()


class Layer:
    """One layer of a trained model on given inputs."""

    def __init__(self, model, number: int, graph: Graph, inputs) -> None:
        _, heads, channels = model.config.layer_sizes()[number]
        weight, source, target, self.bias = (
            model.tensors[f"convs.{number}.{name}"] for name in ("lin.weight", "att_src", "att_dst", "bias")
        )
        self.last = number == model.config.layers - 1
        self.graph = graph
        self.values = project(inputs, weight).reshape(-1, heads, channels)
        logits = (np.einsum("nhc,hc->nh", self.values, vector[0]) for vector in (source, target))
        self.scores = GatScores(*logits, model.config.negative_slope)

    def outputs(self, fan_out: int, strategy: str, means: bool, seed: int):
        """What the next layer gets, or the logits."""
        of_neighbours = neighbour_means(self.graph, self.values) if means else None
        out = guided_attention(
            self.graph, self.values, self.scores, fan_out, strategy=strategy, means=of_neighbours, self_loops=True,
            seed=seed, hop=int(self.last),
        )  # fmt: skip
        if self.last:
            return out.mean(axis=1) + self.bias
        x = out.reshape(len(out), -1) + self.bias
        return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def accuracy(data, graph, features, model, fan_out: int, strategy: str, means: bool, seed: int) -> float:
    x = features
    for number in range(model.config.layers):
        x = Layer(model, number, graph, x).outputs(fan_out, strategy, means, seed)
    return float((x[data.test].argmax(1) == data.labels[data.test]).mean())


def measured(name: str, folder: Path, seed: int, fan_outs: list[int], threads: int) -> list[dict[str, object]]:
    data, graph, features, model = trained(name, folder, seed, threads)
    graph = Graph.from_trusted(graph.indptr, graph.indices, graph.num_sources)
    full = accuracy(data, graph, features, model, -1, "top_attention", False, 0)
    rows = []
    for fan_out in fan_outs:
        errors, x = [], features
        for number in range(model.config.layers):
            layer = Layer(model, number, graph, x)
            errors.append(attention_error(graph, layer.values, layer.scores, fan_out, self_loops=True, seed=seed))
            x = layer.outputs(-1, "top_attention", False, 0)
        for means in (False, True):
            for strategy in STRATEGIES:
                label = strategy + (", means" if means else "")
                draws = range(1 if strategy == "top_attention" else 5)
                rows.append(
                    {
                        "data": name, "seed": seed, "fan_out": fan_out, "strategy": label,
                        "errors": [layer.errors[label] for layer in errors],
                        "ratios": [layer.ratio(label) for layer in errors],
                        "flatness": [layer.flatness for layer in errors],
                        "accuracy": float(np.mean(
                            [accuracy(data, graph, features, model, fan_out, strategy, means, draw) for draw in draws]
                        )),
                        "accuracy_of_all": full,
                    }
                )  # fmt: skip
        print(*errors, f"accuracy with all in-edges {full:.4f}", sep="\n", flush=True)
    return rows


def mean_rows(rows: list[dict[str, object]]) -> list[list[str]]:
    """One line for each data set, fan-out and strategy: means over the seeds."""
    lines = []
    for key in dict.fromkeys((r["data"], r["fan_out"], r["strategy"]) for r in rows):
        mine = [r for r in rows if (r["data"], r["fan_out"], r["strategy"]) == key]
        average = {name: np.mean([r[name] for r in mine], axis=0) for name in ("errors", "ratios", "flatness")}
        cells = [f"{e:.4f} ({q:.2f})" for e, q in zip(average["errors"], average["ratios"])]
        flat = " ".join(f"{f:.3f}" for f in average["flatness"])
        lines.append([str(k) for k in key] + cells + [flat, f"{np.mean([r['accuracy'] for r in mine]):.4f}"])
    return lines


def timed(graph: Graph, heads: int, channels: int, rounds: int, threads: int) -> dict[str, object]:
    """A layer on a large graph: all in-edges, and ten of them; picking alone, and with the attention."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((graph.num_sources, heads, channels), dtype=np.float32)
    scores = GatScores(*rng.standard_normal((2, graph.num_sources, heads), dtype=np.float32))
    nodes = np.arange(graph.num_targets)
    means = neighbour_means(graph, values)
    contenders = {
        "all in-edges": lambda: gat_attention(graph, values, *scores[:2], num_threads=threads),
        "means": lambda: neighbour_means(graph, values, num_threads=threads),
    }
    for strategy in STRATEGIES:
        used = None if strategy == "uniform" else scores
        contenders[f"pick by {strategy}"] = lambda strategy=strategy, used=used: sample_one_hop(
            graph, nodes, 10, strategy=strategy, scores=used, num_threads=threads
        )
        contenders[strategy] = lambda strategy=strategy: guided_attention(
            graph, values, scores, 10, strategy=strategy, num_threads=threads
        )
    for strategy in STRATEGIES[1:]:
        contenders[f"{strategy}, means known"] = lambda strategy=strategy: guided_attention(
            graph, values, scores, 10, strategy=strategy, means=means, num_threads=threads
        )
    timings = alternate(contenders, rounds)
    whole = timings["all in-edges"].median
    lines = [[name, f"{1e3 * t.median:.0f}", f"{t.median / whole:.2f}"] for name, t in timings.items()]
    table(f"G2, {heads} x {channels}, fan-out 10, {threads} threads", ["", "ms", "of all"], lines)
    return {name: timing.summary() for name, timing in timings.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", choices=["Cora", "Facebook pages"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--fan-outs", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(*machine().lines(), sep="\n")
    if arguments.time:
        graph = named("G2")
        shapes = [(8, 16), (1, 128), (1, 512)]
        times = {f"{h} x {c}": timed(graph, h, c, arguments.rounds, arguments.threads) for h, c in shapes}
        report(arguments.json, {"times": times})
        return
    rows = []
    for name in [arguments.only] if arguments.only else ["Cora", "Facebook pages"]:
        for seed in arguments.seeds:
            rows += measured(name, arguments.data, seed, arguments.fan_outs, arguments.threads)
    columns = ["data", "fan-out", "strategy", "layer 1", "layer 2", "flatness", "accuracy"]
    table("relative error (as a part of uniform's), test accuracy", columns, mean_rows(rows))
    report(arguments.json, {"rows": rows})


if __name__ == "__main__":
    main()
