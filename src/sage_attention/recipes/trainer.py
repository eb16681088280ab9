"""Trains a node classifier on sampled mini-batches, with early stopping on the validation nodes.

An epoch is a pure function of the state before it and of (seed, epoch): interrupted and resumed runs end with the
same model as unbroken ones, and so do runs with other numbers of threads.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, ClassVar

import numpy as np
import torch

from sage_attention.errors import ArgumentError
from sage_attention.inference import NodeClassifier, softmax, with_self_loops
from sage_attention.recipes.batches import BatchSource
from sage_attention.recipes.model import TrainableClassifier
from sage_attention.torch import library

if TYPE_CHECKING:
    from sage_attention.graph import Graph
    from sage_attention.inference import ModelConfig
    from sage_attention.recipes.node_dataset import NodeDataset
    from sage_attention.recipes.progress import Progress

__all__ = ["HISTORY", "Trainer", "TrainingOptions", "TrainingState", "copied", "restore_training"]


@dataclass(frozen=True)
class TrainingOptions:
    """How to train.

    Attributes:
        epochs: Most epochs.
        patience: Stop after so many epochs without a better validation result.
        batch_size: Training nodes per step.
        fan_outs: In-edges sampled per node and layer, the last layer's first; -1 takes all.
        learning_rate: Of Adam.
        weight_decay: Of Adam (an L2 penalty).
        dropout: Chance that an input of a layer is set to zero.
        attention_dropout: Chance that an attention weight is set to zero.
        seed: What everything random starts from.
        num_threads: Threads of the native kernels, at least 1.
    """

    epochs: int = 100
    patience: int = 20
    batch_size: int = 2048
    fan_outs: tuple[int, ...] = (10, 10)
    learning_rate: float = 0.01
    weight_decay: float = 2e-4
    dropout: float = 0.5
    attention_dropout: float = 0.0
    seed: int = 0
    num_threads: int = 1


HISTORY = frozenset(("epoch", "train_loss", "val_loss", "val_accuracy", "seconds"))  # of an epoch


@dataclass
class TrainingState:
    """Where training stands after a whole epoch: all that is needed to go on.

    Attributes:
        epoch: Epochs done.
        history: One row per epoch: epoch, train_loss, val_loss, val_accuracy, seconds.
        model: The weights.
        best: The best weights so far.
        optimizer: Adam's moments and step by name.
    """

    COLUMNS: ClassVar[frozenset[str]] = HISTORY  # of the history

    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    model: dict[str, torch.Tensor] = field(default_factory=dict)
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def best_epoch(self) -> int:
        """The epoch the best weights are from: the last whose validation accuracy and loss were both unbeaten."""
        return self._last_unbeaten(all)

    @property
    def improved_epoch(self) -> int:
        """The last epoch whose validation accuracy or loss was unbeaten; patience counts from it."""
        return self._last_unbeaten(any)

    def _last_unbeaten(self, required: Callable[[tuple[bool, bool]], bool]) -> int:
        accuracy, loss, last = -1.0, float("inf"), 0
        for row in self.history:
            if required((row["val_accuracy"] >= accuracy, row["val_loss"] <= loss)):
                last = int(row["epoch"])
                accuracy, loss = max(accuracy, row["val_accuracy"]), min(loss, row["val_loss"])
        return last


_NOTHING = torch.empty(0, 0)  # of a shape that no parameter has


def copied(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies of weights, away from what training changes."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def restore_training(model: torch.nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
    """Gives a model and its Adam what a saved state holds.

    Raises:
        ArgumentError: It is not of such a model.
    """
    names = dict(model.named_parameters())
    for part in (state.model, state.best, state.optimizer):
        for name, tensor in part.items():
            parameter_name = name.rpartition(".")[0] if part is state.optimizer else name
            if parameter_name not in names or tensor.dtype != torch.float32:
                raise ArgumentError("state", "float32 tensors of the model's parameters", f"{name}, {tensor.dtype}")
    for name, parameter in names.items():
        shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
        moments = {key: state.optimizer.get(f"{name}.{key}", _NOTHING) for key in shapes}
        weights = [part.get(name, _NOTHING) for part in (state.model, state.best)]
        if (
            {key: value.shape for key, value in moments.items()} != shapes
            or any(weight.shape != parameter.shape for weight in weights)
            or not float(moments["step"]) >= 1
        ):
            raise ArgumentError("state", f"{name} of shape {list(parameter.shape)}", "none or another shape")
        optimizer.state[parameter] = {key: value.clone() for key, value in moments.items()}
    model.load_state_dict(state.model)


class Trainer:
    """Trains one model on one data set.

    Args:
        config: What the model is.
        options: How to train.
        data: The data set.
        graph: Its edges, without self loops.
        features: float32 [N, F], dense or SciPy CSR, normalised.
    """

    def __init__(
        self, config: ModelConfig, options: TrainingOptions, data: NodeDataset, graph: Graph, features: Any
    ) -> None:
        self.config = config
        self.options = options
        self.data = data
        self.graph = graph
        self.looped = with_self_loops(graph)
        self.features = features
        torch.manual_seed(options.seed)
        self.model = TrainableClassifier(config, options.dropout, options.attention_dropout)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
        )
        self.batches = BatchSource(
            graph,
            features,
            data.labels,
            data.train,
            fan_outs=list(options.fan_outs),
            batch_size=options.batch_size,
            seed=options.seed,
            num_threads=options.num_threads,
        )
        self.state = TrainingState(model=copied(self.model.state_dict()), best=copied(self.model.state_dict()))

    def restore(self, state: TrainingState) -> None:
        """Goes on from a saved state.

        Raises:
            ArgumentError: It is not of such a model.
        """
        restore_training(self.model, self.optimizer, state)
        self.state = state

    def run(self, progress: Progress, after_epoch: Callable[[TrainingState], None] | None = None) -> TrainingState:
        """Trains to the end. ``self.state`` is always that after the last whole epoch, also on Ctrl-C.

        Args:
            progress: Told of each batch and epoch.
            after_epoch: Called with the state after each epoch.

        Returns:
            The last state.
        """
        library.set_num_threads(self.options.num_threads)
        # torch's own sums depend on its number of threads; ours do not. One thread here keeps results the same.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            while self.state.epoch < self.options.epochs and not self.stopped_early:
                self._epoch(self.state.epoch + 1, progress)
                if after_epoch is not None:
                    after_epoch(self.state)
        finally:
            torch.set_num_threads(threads)
            library.set_num_threads(None)
        return self.state

    @property
    def stopped_early(self) -> bool:
        """Whether patience has run out."""
        return self.state.epoch - self.state.improved_epoch >= self.options.patience

    def classifier(self) -> NodeClassifier:
        """The best model so far, as it is saved."""
        return NodeClassifier(self.config, {name: tensor.numpy() for name, tensor in self.state.best.items()})

    def _epoch(self, epoch: int, progress: Progress) -> None:
        start = time.perf_counter()
        self.model.train()
        losses = []
        with contextlib.closing(self.batches.epoch(epoch)) as batches:  # an interrupt ends the second thread now
            for number, batch in enumerate(batches):
                torch.manual_seed(batch.seed & (2**63 - 1))
                loss = torch.nn.functional.cross_entropy(self.model(batch), batch.labels)
                self.optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                losses.append(float(loss.detach()) * len(batch.labels))
                progress.tick((number + 1) / len(self.batches))
        val_loss, val_accuracy = self._validate()
        row = {
            "epoch": epoch,
            "train_loss": float(np.sum(losses)) / len(self.data.train),
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "seconds": time.perf_counter() - start,
        }
        self._commit(epoch, row)
        told = f"  val loss {val_loss:.4f}  val" if len(self.data.val) else "  train"
        progress.step(message=f"train loss {row['train_loss']:.4f}{told} accuracy {val_accuracy:.4f}")

    def _validate(self) -> tuple[float, float]:
        """Loss and accuracy on the validation nodes (the training nodes where there are none)."""
        nodes = self.data.val if len(self.data.val) else self.data.train
        model = NodeClassifier(self.config, self.model.arrays())
        # The features are normalised already.
        logits = model.forward_normalized(self.looped, self.features, num_threads=self.options.num_threads)[0][nodes]
        labels = self.data.labels[nodes]
        chosen = softmax(logits)[np.arange(len(nodes), dtype=np.int64), labels]
        loss = float(-np.log(np.maximum(chosen, 1e-30)).mean())
        return loss, float((logits.argmax(axis=1) == labels).mean())

    def _commit(self, epoch: int, row: dict[str, float]) -> None:
        """Makes the epoch part of the state, all at once, so that an interrupt cannot leave half of it."""
        state = self.state
        model = copied(self.model.state_dict())
        moments = {
            f"{name}.{key}": value.detach().clone()
            for name, parameter in self.model.named_parameters()
            for key, value in self.optimizer.state[parameter].items()
        }
        after = TrainingState(epoch, [*state.history, row], model, state.best, moments)
        if after.best_epoch == epoch:
            after.best = model
        self.state = after
