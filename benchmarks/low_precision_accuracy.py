"""What tables in fewer bytes cost a trained classifier: Facebook pages (22,470 pages, four kinds).

The training command's model (two GAT layers, 8 heads x 8 channels) is trained in float32 once per seed and then applied
with the projected values of both layers in float16, bfloat16 and int8. Quoted are test accuracies, the differences to
float32, and what ``quantization_report`` says of the logits.

    python benchmarks/low_precision_accuracy.py --data ../shared/data/facebook_pages
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any, Callable

from sage_attention import quantization_report, quantize
from sage_attention.inference import ModelConfig
from sage_attention.recipes.dataset import load_dataset
from sage_attention.recipes.node import simple_graph
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.trainer import Trainer, TrainingOptions

KINDS = ("float16", "bfloat16", "int8")


def run(folder: Path, seed: int, epochs: int, threads: int) -> list[dict[str, Any]]:
    """Trains one model; a row for float32 and for each kind."""
    data = load_dataset(
        folder / "edges.csv", folder / "features.json", folder / "target.csv", undirected=True, seed=seed
    )
    options = TrainingOptions(seed=seed, num_threads=threads, epochs=epochs, patience=epochs)
    config = ModelConfig(num_features=data.features.shape[1], class_names=data.class_names)
    trainer = Trainer(config, options, data, simple_graph(data), data.features)
    with Progress(epochs, quiet=True) as progress:
        trainer.run(progress)
    model = trainer.classifier()

    def logits(keep: Callable[[Any], Any] | None) -> Any:
        return model.forward(trainer.graph, data.features, num_threads=threads, keep=keep)[0]

    def accuracy(keep: Callable[[Any], Any] | None) -> float:
        return float((logits(keep)[data.test].argmax(1) == data.labels[data.test]).mean())

    base = accuracy(None)
    rows: list[dict[str, Any]] = [{"seed": seed, "kind": "float32", "test_accuracy": base, "difference": 0.0}]
    for kind, report in quantization_report(logits, KINDS).items():
        found = accuracy(functools.partial(quantize, kind=kind))
        rows.append(
            {
                "seed": seed,
                "kind": kind,
                "test_accuracy": found,
                "difference": found - base,
                "test_pages": len(data.test),
                "output_max": report.output_max,
                "output_mean": report.output_mean,
                "same_choice": report.same_choice,
            }
        )
    return rows


def main() -> None:
    """Prints a line per seed and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/facebook_pages"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for seed in arguments.seeds:
        for row in run(arguments.data, seed, arguments.epochs, arguments.threads):
            results.append(row)
            print(json.dumps(row), flush=True)
    for kind in KINDS:
        worst = max(abs(row["difference"]) for row in results if row["kind"] == kind)
        print(f"{kind}: test accuracy within {worst:.4f} of float32 over {len(arguments.seeds)} seeds")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
