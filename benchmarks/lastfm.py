"""Last.fm (1,892 users, 4,489 artists): our recommender beside matrix factorisation and PyG's LightGCN, in one run.

Recall@20, NDCG@20 and MRR with every artist ranked for every user. All contenders have 64 channels, the same training,
validation and test pairs, the same batch size, one thread each, and the same seconds of CPU time, looks at the
validation pairs included; whoever has used least so far goes next. Of each, the state with the best recall on the
validation pairs is judged on the test pairs; those that have a graph are given the validation pairs as edges then.
"LightGCN, our loss" is PyG's class under the loss, negatives and temperature of ours, to tell what the loss gives from
what the attention gives. Learning rate and penalty of each peer are those of a few that are best on the validation
pairs with the first seed.

    python benchmarks/lastfm.py --data ../shared/data/lastfm

The folder holds data1.txt and test1.txt (user, artist, plays) and trustnetwork.txt (user, user).
"""

from __future__ import annotations

import argparse
import itertools
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from common import machine, report, table
from sage_attention.recipes.link_batches import draw_negatives
from sage_attention.recipes.link_commands import BY_LOSS
from sage_attention.recipes.link_dataset import TEST, TRAIN, VAL, LinkDataset, load_interactions
from sage_attention.recipes.link_judge import item_lists, judge
from sage_attention.recipes.link_model import LinkConfig
from sage_attention.recipes.link_trainer import LinkOptions, LinkTrainer
from sage_attention.recipes.progress import Progress
from sage_attention.recipes.ranking import RankingMetrics, evaluate_ranking

CHANNELS = 64
BATCH = 2048
TOP = 20


class Ours:
    """`sage-attention train --task link` with its defaults, an epoch at a time."""

    looks = 1

    def __init__(self, data: LinkDataset, seed: int) -> None:
        softmax = BY_LOSS["softmax"]
        options = LinkOptions(epochs=0, patience=10**9, batch_size=BATCH, k=TOP, seed=seed, **softmax)
        self.data, self.options = data, options
        self.trainer = LinkTrainer(LinkConfig(data.num_users, data.num_items, channels=CHANNELS), options, data)

    def epoch(self) -> float:
        """Trains for an epoch; recall on the validation pairs."""
        self.trainer.options = replace(self.options, epochs=self.trainer.state.epoch + 1)
        with Progress(self.trainer.options.epochs, quiet=True, start=self.trainer.state.epoch) as progress:
            state = self.trainer.run(progress)
        return float(state.history[-1]["val_recall"])

    def keep(self) -> None:
        """The trainer keeps its best epoch by itself."""

    def judged(self) -> RankingMetrics:
        """How the best epoch ranks the test pairs."""
        return judge(self.trainer.model(), self.data, (TRAIN, VAL), TEST, TOP, num_threads=1)


class Peer(torch.nn.Module):
    """What the peers share: batches of pairs, losses, rankings."""

    looks = 1  # epochs between two looks at the validation pairs

    def __init__(self, data: LinkDataset, seed: int, rate: float, penalty: float, loss: str = "bpr") -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.data, self.loss, self.penalty = data, loss, penalty
        self.chance = np.random.default_rng(seed)
        pairs = data.pairs(TRAIN)
        self.users, self.items = data.users[pairs], data.items[pairs]
        self.candidates = np.unique(self.items)
        self.known, self.wanted = item_lists(data, TRAIN), item_lists(data, VAL)
        self.has = torch.zeros(data.num_users, data.num_items, dtype=torch.bool)
        self.has[self.users, self.items] = True
        self.build()
        self.optimizer = torch.optim.Adam(self.parameters(), lr=rate)
        self.best: dict[str, Any] = {}

    def build(self) -> None:
        raise NotImplementedError

    def represent(self, *parts: int) -> torch.Tensor:
        """Users' rows, then the items', with the pairs of some parts for edges."""
        raise NotImplementedError

    def embedding(self) -> torch.Tensor:
        raise NotImplementedError

    def epoch(self) -> float:
        """Trains for `looks` epochs; recall on the validation pairs."""
        self.train()
        orders = [self.chance.permutation(len(self.users)) for _ in range(self.looks)]
        for order, start in itertools.product(orders, range(0, len(self.users), BATCH)):
            some = order[start : start + BATCH]
            users, items = self.users[some], self.items[some]
            loss = self._softmax(users, items) if self.loss == "softmax" else self._bpr(users, items)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return self._ranked(self.known, self.wanted, TRAIN).recall

    def _bpr(self, users: np.ndarray, items: np.ndarray) -> torch.Tensor:
        others = draw_negatives(users, 1, self.candidates, self.known, self.chance)[:, 0]
        z, x = self.represent(TRAIN), self.embedding()
        ends = users, items + self.data.num_users, others + self.data.num_users
        user, item, other = (z[torch.from_numpy(end)] for end in ends)
        squares = sum(x[torch.from_numpy(end)].square().sum() for end in ends)
        return functional.softplus((user * other).sum(1) - (user * item).sum(1)).mean() + self.penalty * squares / (
            2 * len(users)
        )

    def _softmax(self, users: np.ndarray, items: np.ndarray) -> torch.Tensor:
        settings = BY_LOSS["softmax"]
        others = self.chance.choice(self.candidates, settings["negatives"], replace=False)
        z = functional.normalize(self.represent(TRAIN))
        known = self.has[torch.from_numpy(users)][:, torch.from_numpy(others)]
        user, item = z[torch.from_numpy(users)], z[torch.from_numpy(items + self.data.num_users)]
        logits = user @ z[torch.from_numpy(others + self.data.num_users)].t() / settings["temperature"]
        lacks = len(self.candidates) - self.has[torch.from_numpy(users)].sum(1)
        correction = torch.log(lacks / (len(others) - known.sum(1)))
        own = (user * item).sum(1) / settings["temperature"]
        return (torch.logaddexp(own, logits.masked_fill(known, -1e9).logsumexp(1) + correction) - own).mean()

    @torch.no_grad()
    def _ranked(self, known: Any, wanted: Any, *parts: int) -> RankingMetrics:
        self.eval()
        z = self.represent(*parts)
        if self.loss == "softmax":
            z = functional.normalize(z)
        users, items = z[: self.data.num_users].numpy(), z[self.data.num_users :].numpy()
        nobodys = np.setdiff1d(np.arange(len(items)), self.data.items[self.data.pairs(*parts)])

        def scores(some: np.ndarray) -> np.ndarray:
            made = users[some] @ items.T
            made[:, nobodys] = -np.inf
            return made

        return evaluate_ranking(scores, len(items), known, wanted, TOP)

    def keep(self) -> None:
        """Keeps this epoch, the best so far."""
        self.best = {name: tensor.clone() for name, tensor in self.state_dict().items()}

    def judged(self) -> RankingMetrics:
        """How the best epoch ranks the test pairs."""
        self.load_state_dict(self.best)
        return self._ranked(item_lists(self.data, TRAIN, VAL), item_lists(self.data, TEST), TRAIN, VAL)


class MatrixFactorisation(Peer):
    """A row for each user and item, BPR (Rendle et al. 2009)."""

    looks = 5  # an epoch takes less than a look

    def build(self) -> None:
        rows = 0.1 * torch.randn(self.data.num_users + self.data.num_items, CHANNELS)
        self.rows = torch.nn.Parameter(rows)

    def represent(self, *_parts: int) -> torch.Tensor:
        return self.rows

    def embedding(self) -> torch.Tensor:
        return self.rows


class LightGCN(Peer):
    """PyG's class, three layers over the whole graph in each step, as in its paper (He et al. 2020)."""

    def build(self) -> None:
        from torch_geometric.nn.models import LightGCN as Model

        self.model = Model(self.data.num_users + self.data.num_items, CHANNELS, 3, normalize=False)
        torch.nn.init.normal_(self.model.embedding.weight, std=0.1)
        self.edges = {parts: self._edges(*parts) for parts in ((TRAIN,), (TRAIN, VAL))}

    def _edges(self, *parts: int) -> torch.Tensor:
        """The normalised adjacency, made once: the class is faster on a sparse matrix than on edges."""
        pairs = self.data.pairs(*parts)
        size = self.data.num_users + self.data.num_items
        users, items = self.data.users[pairs], self.data.items[pairs] + self.data.num_users
        both = np.stack([np.concatenate([users, items]), np.concatenate([items, users])])
        degree = np.bincount(both[0], minlength=size)
        weight = 1 / np.sqrt(degree[both[0]] * degree[both[1]])
        shape = torch.Size((size, size))
        torch.sparse.check_sparse_tensor_invariants.enable()
        made = torch.sparse_coo_tensor(torch.from_numpy(both), torch.from_numpy(weight.astype(np.float32)), shape)
        return made.coalesce().to_sparse_csr()

    def represent(self, *parts: int) -> torch.Tensor:
        return self.model.get_embedding(self.edges[parts])

    def embedding(self) -> torch.Tensor:
        return self.model.embedding.weight


def raced(contenders: dict[str, Any], seconds: float) -> dict[str, dict[str, Any]]:
    """Trains all for so many seconds each, in turn; how the best epoch of each ranks."""
    used = dict.fromkeys(contenders, 0.0)
    recalls: dict[str, list[float]] = {name: [] for name in contenders}
    while min(used.values()) < seconds:
        name = min(used, key=used.__getitem__)
        start = time.thread_time()  # all work in this thread, so what else the machine does does not count
        recalls[name].append(contenders[name].epoch())
        used[name] += time.thread_time() - start
        if recalls[name][-1] > max(recalls[name][:-1], default=-1.0):
            contenders[name].keep()
    results = {}
    for name, contender in contenders.items():
        test = contender.judged()
        results[name] = {
            "val_recall": max(recalls[name]),
            "recall": test.recall,
            "ndcg": test.ndcg,
            "mrr": test.mrr,
            "best_epoch": (int(np.argmax(recalls[name])) + 1) * contender.looks,
            "epochs": len(recalls[name]) * contender.looks,
            "seconds": used[name],
        }
        print(name, results[name], flush=True)
    return results


PEERS = {
    "matrix factorisation, BPR": (MatrixFactorisation, "bpr"),
    "LightGCN of PyG, BPR": (LightGCN, "bpr"),
    "LightGCN of PyG, our loss": (LightGCN, "softmax"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/lastfm"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=45, help="of CPU time for each contender (default: 45)")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.005, 0.02], help="learning rates of the peers")
    parser.add_argument("--penalties", type=float, nargs="+", default=[1e-4, 1e-2], help="of the peers with BPR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("\n".join(machine().lines()))
    chosen: dict[str, tuple[float, float]] = {}
    runs: list[dict[str, Any]] = []
    for seed in arguments.seeds:
        files = [arguments.data / name for name in ("data1.txt", "test1.txt", "trustnetwork.txt")]
        data = load_interactions(*files, seed=seed)
        alone = replace(data, social=data.social[:, :0])
        contenders: dict[str, Any] = {"ours": Ours(alone, seed), "ours, with ties": Ours(data, seed)}
        for peer, (kind, loss) in PEERS.items():
            penalties = arguments.penalties if loss == "bpr" else [0.0]
            grid = [(rate, penalty) for rate in arguments.rates for penalty in penalties]
            for rate, penalty in [chosen[peer]] if peer in chosen else grid:
                contenders[f"{peer} | {rate} {penalty}"] = kind(alone, seed, rate, penalty, loss)
        results = raced(contenders, arguments.seconds)
        for peer in PEERS:
            names = [name for name in results if name.startswith(f"{peer} | ")]
            best = max(names, key=lambda name: results[name]["val_recall"])
            rate, penalty = best.partition(" | ")[2].split()
            chosen[peer] = float(rate), float(penalty)
            results[peer] = results[best]
        runs.append(results)
    rows, figures = [], {}
    for name in ("ours", "ours, with ties", *PEERS):
        means = {key: float(np.mean([run[name][key] for run in runs])) for key in runs[0][name]}
        figures[name] = {"mean": means, "runs": [run[name] for run in runs], "settings": chosen.get(name)}
        each = ", ".join(f"{run[name]['recall']:.4f}" for run in runs)
        rows.append([name, f"{means['recall']:.4f}", f"{means['ndcg']:.4f}", f"{means['mrr']:.4f}", each])
        rows[-1] += [f"{means['best_epoch']:.0f} of {means['epochs']:.0f}", f"{means['seconds']:.0f}"]
    columns = ["", f"recall@{TOP}", f"NDCG@{TOP}", "MRR", "recall, each seed", "best epoch", "s"]
    table(f"Last.fm, seeds {arguments.seeds}, {arguments.seconds:g} s each", columns, rows)
    print("learning rate and penalty of the peers:", chosen)
    report(arguments.json, {"contenders": figures, "seeds": runs})


if __name__ == "__main__":
    main()
