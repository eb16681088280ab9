"""Cora in the setting of the GAT paper (Veličković et al. 2018): 8 heads x 8, dropout 0.6, weight decay 5e-4.

The standard split (140 / 500 / 1000), row-normalised features, early stopping with patience 100, all in-edges. The
paper reports 83.0 +- 0.7 % over 100 runs.

    python benchmarks/cora.py --data ../shared/data/cora.npz
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from sage_attention.inference import ModelConfig, normalized
from sage_attention.recipes.dataset import load_npz_dataset
from sage_attention.recipes.node import simple_graph
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.trainer import Trainer, TrainingOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/cora.npz"))
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds (default: 10)")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    accuracies = []
    for seed in range(arguments.seeds):
        data = load_npz_dataset(arguments.data, seed=seed)
        config = ModelConfig(data.features.shape[1], data.class_names, normalize="row")
        options = TrainingOptions(
            epochs=1000,
            patience=100,
            batch_size=len(data.train),
            fan_outs=(-1, -1),
            learning_rate=0.005,
            weight_decay=5e-4,
            dropout=0.6,
            attention_dropout=0.6,
            seed=seed,
            num_threads=arguments.threads,
        )
        features = normalized(data.features, config.normalize)
        trainer = Trainer(config, options, data, simple_graph(data), features)
        start = time.perf_counter()
        with Progress(options.epochs, quiet=True) as progress:
            state = trainer.run(progress)
        seconds = time.perf_counter() - start
        logits = trainer.classifier().forward(trainer.graph, data.features)[0]
        accuracies.append(float((logits[data.test].argmax(1) == data.labels[data.test]).mean()))
        print(f"seed {seed}: {accuracies[-1]:.4f} after {state.epoch} epochs, {seconds:.1f} s", flush=True)
    print(f"mean {np.mean(accuracies):.4f}, standard deviation {np.std(accuracies):.4f}")


if __name__ == "__main__":
    main()
