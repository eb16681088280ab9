"""Trains a recommender on sampled mini-batches, with early stopping on the validation pairs.

An epoch is a pure function of the state before it and of (seed, epoch): interrupted and resumed runs end with the
same model as unbroken ones, and so do runs with other numbers of threads.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

import numpy as np
import torch

from sage_attention.recipes.link_batches import LinkBatchSource
from sage_attention.recipes.link_dataset import TRAIN, VAL
from sage_attention.recipes.link_judge import item_lists, messages_of
from sage_attention.recipes.link_model import LinkModel
from sage_attention.recipes.link_network import LinkNetwork, bpr_loss, penalty, softmax_loss
from sage_attention.recipes.ranking import RankingMetrics, evaluate_ranking
from sage_attention.recipes.trainer import TrainingState, copied, restore_training
from sage_attention.torch import library

if TYPE_CHECKING:
    from sage_attention.recipes.link_dataset import LinkDataset
    from sage_attention.recipes.link_model import LinkConfig
    from sage_attention.recipes.progress import Progress

__all__ = ["LinkOptions", "LinkState", "LinkTrainer"]


@dataclass(frozen=True)
class LinkOptions:
    """How to train a recommender.

    Attributes:
        epochs: Most epochs.
        patience: Stop after so many epochs without a better Recall@K on the validation pairs.
        batch_size: Pairs per step.
        fan_outs: In-edges sampled per node and layer, those of the pairs' ends first; -1 takes all.
        learning_rate: Of Adam.
        penalty: Of half the squared length of the embeddings a batch is about, in the mean over its pairs.
        attention_dropout: Chance that an attention weight is set to zero.
        loss: ``"softmax"`` or ``"bpr"``.
        negatives: With softmax, items that all pairs of a batch share; with bpr, items for each pair.
        temperature: What differences of scores are divided by.
        k: Length of the lists that are judged.
        seed: What everything random starts from.
        num_threads: Threads of the native kernels, at least 1.
    """

    epochs: int = 100
    patience: int = 10
    batch_size: int = 2048
    fan_outs: tuple[int, ...] = (10, 10)
    learning_rate: float = 0.005
    penalty: float = 0.0
    attention_dropout: float = 0.0
    loss: str = "softmax"
    negatives: int = 1024
    temperature: float = 0.2
    k: int = 20
    seed: int = 0
    num_threads: int = 1


@dataclass
class LinkState(TrainingState):
    """Where training stands after a whole epoch; see `TrainingState`."""

    COLUMNS = frozenset(("epoch", "train_loss", "val_recall", "val_ndcg", "seconds"))

    @property
    def best_epoch(self) -> int:
        """The first epoch with the best recall on the validation pairs; the last one where there are none."""
        if not self.history:
            return 0
        recalls = [row["val_recall"] for row in self.history]
        if max(recalls) < 0:
            return self.epoch
        return int(self.history[int(np.argmax(recalls))]["epoch"])

    @property
    def improved_epoch(self) -> int:
        """The same: patience counts from it."""
        return self.best_epoch


class LinkTrainer:
    """Trains one recommender on one data set.

    Args:
        config: What the model is.
        options: How to train.
        data: The data set.
    """

    def __init__(self, config: LinkConfig, options: LinkOptions, data: LinkDataset) -> None:
        self.config = config
        self.options = options
        self.data = data
        torch.manual_seed(options.seed)
        self.network = LinkNetwork(config, options.attention_dropout)
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=options.learning_rate)
        pairs = data.pairs(TRAIN)
        self.messages = messages_of(data, TRAIN)
        self.known = item_lists(data, TRAIN)
        self.wanted = item_lists(data, VAL)
        self.batches = LinkBatchSource(
            self.messages,
            data.num_users,
            data.users[pairs],
            data.items[pairs],
            self.known,
            fan_outs=list(options.fan_outs),
            batch_size=options.batch_size,
            negatives=options.negatives,
            shared=options.loss == "softmax",
            seed=options.seed,
            num_threads=options.num_threads,
        )
        self.loss = {"softmax": softmax_loss, "bpr": bpr_loss}[options.loss]
        state = self.network.state_dict()
        self.state = LinkState(model=copied(state), best=copied(state))

    def restore(self, state: TrainingState) -> None:
        """Goes on from a saved state.

        Raises:
            ArgumentError: It is not of such a model.
        """
        restore_training(self.network, self.optimizer, state)
        self.state = LinkState(**vars(state))

    @property
    def stopped_early(self) -> bool:
        """Whether patience has run out."""
        has_val = len(self.wanted.items) > 0
        return has_val and self.state.epoch - self.state.improved_epoch >= self.options.patience

    def model(self) -> LinkModel:
        """The best model so far, as it is saved."""
        return LinkModel(self.config, {name: tensor.numpy() for name, tensor in self.state.best.items()})

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

    def _epoch(self, epoch: int, progress: Progress) -> None:
        start = time.perf_counter()
        self.network.train()
        losses = []
        with contextlib.closing(self.batches.epoch(epoch)) as batches:  # an interrupt ends the second thread now
            for number, batch in enumerate(batches):
                torch.manual_seed(batch.seed & (2**63 - 1))
                loss = self.loss(self.network, batch, self.options.temperature)
                whole = loss + self.options.penalty * penalty(self.network, batch) if self.options.penalty else loss
                self.optimizer.zero_grad()
                whole.backward()  # type: ignore[no-untyped-call]
                self.optimizer.step()
                losses.append(float(loss.detach()) * len(batch.users))
                progress.tick((number + 1) / len(self.batches))
        val = self._validate()
        row = {
            "epoch": epoch,
            "train_loss": float(np.sum(losses)) / len(self.batches.users),
            "val_recall": -1.0 if val is None else val.recall,
            "val_ndcg": -1.0 if val is None else val.ndcg,
            "seconds": time.perf_counter() - start,
        }
        self._commit(epoch, row)
        told = "" if val is None else f"  val recall@{val.k} {val.recall:.4f}  val NDCG@{val.k} {val.ndcg:.4f}"
        progress.step(message=f"train loss {row['train_loss']:.4f}{told}")

    def _validate(self) -> RankingMetrics | None:
        if len(self.wanted.items) == 0:
            return None
        model = LinkModel(self.config, self.network.arrays())
        made = model.represent(self.messages, num_threads=self.options.num_threads)
        return evaluate_ranking(
            lambda users: model.scores(made, users), self.data.num_items, self.known, self.wanted, self.options.k
        )

    def _commit(self, epoch: int, row: dict[str, float]) -> None:
        """Makes the epoch part of the state, all at once, so that an interrupt cannot leave half of it."""
        state = self.state
        model = copied(self.network.state_dict())
        moments = {
            f"{name}.{key}": value.detach().clone()
            for name, parameter in self.network.named_parameters()
            for key, value in self.optimizer.state[parameter].items()
        }
        after = LinkState(epoch, [*state.history, row], model, state.best, moments)
        if after.best_epoch == epoch:
            after.best = model
        self.state = after
