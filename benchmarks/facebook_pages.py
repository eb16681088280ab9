"""Facebook pages (22,470 pages, four kinds): our training command beside PyG's full-batch GAT, in one run.

Both get the same split, sizes (8 heads x 8 channels, two layers), learning rate and number of epochs; epochs of the two
alternate, so that both see the same machine. Quoted are medians of seconds per epoch (a training pass and a look at the
validation nodes), and test accuracies.

    python benchmarks/facebook_pages.py --data ../shared/data/facebook_pages
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from sage_attention.inference import ModelConfig
from sage_attention.recipes.dataset import load_dataset
from sage_attention.recipes.node import simple_graph
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.trainer import Trainer, TrainingOptions


class FullBatchGAT(torch.nn.Module):
    """PyG's layers, as its examples put them together."""

    def __init__(self, data, options) -> None:
        super().__init__()
        from torch_geometric.nn import GATConv

        dropout = options.attention_dropout
        self.dropout = options.dropout
        self.first = GATConv(data.features.shape[1], 8, heads=8, dropout=dropout)
        self.second = GATConv(64, data.num_classes, heads=1, dropout=dropout)

    def forward(self, x, edge_index):
        x = functional.dropout(x, self.dropout, self.training)
        x = functional.elu(self.first(x, edge_index))
        return self.second(functional.dropout(x, self.dropout, self.training), edge_index)


class Peer:
    """One epoch at a time of PyG's full-batch training."""

    def __init__(self, data, options) -> None:
        torch.manual_seed(options.seed)
        self.data = data
        self.x = torch.from_numpy(data.features.toarray())
        self.edge_index = torch.from_numpy(data.edge_index)
        self.labels = torch.from_numpy(data.labels)
        self.model = FullBatchGAT(data, options)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
        )
        self.best = (-1.0, 0.0)

    def epoch(self) -> None:
        self.model.train()
        self.optimizer.zero_grad()
        train = torch.from_numpy(self.data.train)
        loss = functional.cross_entropy(self.model(self.x, self.edge_index)[train], self.labels[train])
        loss.backward()
        self.optimizer.step()
        self.model.eval()
        with torch.no_grad():
            predicted = self.model(self.x, self.edge_index).argmax(1).numpy()
        right = predicted == self.data.labels
        self.best = max(self.best, (right[self.data.val].mean(), right[self.data.test].mean()))


def run(folder: Path, seed: int, epochs: int, threads: int, peer_every: int) -> dict[str, object]:
    data = load_dataset(
        folder / "edges.csv", folder / "features.json", folder / "target.csv", undirected=True, seed=seed
    )
    options = TrainingOptions(seed=seed, num_threads=threads, epochs=epochs, patience=epochs)
    config = ModelConfig(num_features=data.features.shape[1], class_names=data.class_names)
    trainer = Trainer(config, options, data, simple_graph(data), data.features)
    ours, theirs = [], []
    peer = Peer(data, options) if peer_every else None

    def one_of_theirs(state) -> None:
        if peer is not None and state.epoch % peer_every == 0:
            native_threads = torch.get_num_threads()
            torch.set_num_threads(threads)
            start = time.perf_counter()
            peer.epoch()
            theirs.append(time.perf_counter() - start)
            torch.set_num_threads(native_threads)

    with Progress(epochs, quiet=True) as progress:
        trainer.run(progress, one_of_theirs)
    ours = [row["seconds"] for row in trainer.state.history]
    logits = trainer.classifier().forward(trainer.graph, data.features)[0]
    accuracy = float((logits[data.test].argmax(1) == data.labels[data.test]).mean())
    result: dict[str, object] = {
        "seed": seed,
        "epochs": trainer.state.epoch,
        "test_accuracy": accuracy,
        "seconds_per_epoch": float(np.median(ours)),
    }
    if peer is not None:
        result["pyg_seconds_per_epoch"] = float(np.median(theirs))
        result["pyg_epochs"] = len(theirs)
        result["pyg_test_accuracy"] = float(peer.best[1])
        result["times_faster"] = float(np.median(theirs) / np.median(ours))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/facebook_pages"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-every", type=int, default=1, help="an epoch of PyG after so many of ours; 0: none")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for seed in arguments.seeds:
        results.append(run(arguments.data, seed, arguments.epochs, arguments.threads, arguments.peer_every))
        print(results[-1], flush=True)
    print("mean test accuracy", np.mean([r["test_accuracy"] for r in results]))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
