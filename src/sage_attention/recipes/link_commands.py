"""``sage-attention train --task link`` and ``recommend``: their options and what they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage_attention import _arguments
from sage_attention._paths import shown_path, system_path
from sage_attention.errors import ArgumentError, counted
from sage_attention.recipes.command_parts import (
    add_encoding,
    add_threads,
    complain,
    need_torch,
    refuse_earlier_results,
    say,
    threads,
)

if TYPE_CHECKING:
    import argparse

__all__ = ["BY_LOSS", "DEFAULTS", "add_recommend", "add_train_options", "train"]

DEFAULTS: dict[str, Any] = {
    "interactions": None,
    "test": None,
    "social": None,
    "user_column": None,
    "item_column": None,
    "weight_column": None,
    "time_column": None,
    "layout": "auto",
    "divide": "auto",
    "split": (0.8, 0.1, 0.1),
    "channels": 64,
    "heads": 1,
    "fan_outs": None,
    "patience": 10,
    "learning_rate": 0.005,
    "loss": "softmax",
    "negatives": None,
    "temperature": None,
    "penalty": None,
    "top": 20,
}
BY_LOSS: dict[str, dict[str, Any]] = {
    "softmax": {"negatives": 1024, "temperature": 0.2, "penalty": 0.0},
    "bpr": {"negatives": 1, "temperature": 1.0, "penalty": 1e-4},
}


def _column(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def add_train_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``--task link``."""
    data = parser.add_argument_group("data (--task link)")
    data.add_argument(
        "--interactions", metavar="FILE",
        help="CSV, TSV or Parquet: user, item[, weight][, time]; or text with a line per user: user item item ...",
    )  # fmt: skip
    data.add_argument("--test", metavar="FILE", help="the same: what to judge by (default: a part is set aside)")
    data.add_argument("--social", metavar="FILE", help="CSV, TSV, Parquet, NPY or NPZ: user, user; taken both ways")
    for name, text in (
        ("user", "users"), ("item", "items"),
        ("weight", "weights, as counts or ratings; none: read none"), ("time", "times; none: read none"),
    ):  # fmt: skip
        data.add_argument(
            f"--{name}-column", type=_column, metavar="COLUMN", help=f"name or number, from 1, of the column of {text}"
        )
    data.add_argument(
        "--layout", choices=("auto", "table", "lists"), default=None, help="of --interactions (default: auto)"
    )
    data.add_argument(
        "--divide", choices=("auto", "time", "user"), default=None,
        help="time: earlier pairs to train, later to test; user: by chance for each user (default: time if there is "
        "one)",
    )  # fmt: skip
    model = parser.add_argument_group("model and training (--task link)")
    model.add_argument(
        "--channels", type=_arguments.channels, default=None, metavar="N", help="of an embedding (default: 64)"
    )
    model.add_argument(
        "--loss", choices=tuple(BY_LOSS), default=None,
        help="softmax: cross-entropy over sampled items, on cosines; bpr: pairwise, on dot products (default: softmax)",
    )  # fmt: skip
    model.add_argument(
        "--negatives", type=_arguments.positive, default=None, metavar="N",
        help="softmax: items that all pairs of a batch share (default: 1024); bpr: items for each pair (default: 1)",
    )  # fmt: skip
    model.add_argument(
        "--temperature", type=_arguments.temperature, default=None, metavar="X",
        help="what scores are divided by (default: 0.2 for softmax, 1 for bpr)",
    )  # fmt: skip
    model.add_argument(
        "--penalty", type=_arguments.rate, default=None, metavar="X",
        help="of the squared length of embeddings (default: 0 for softmax, 0.0001 for bpr)",
    )  # fmt: skip
    model.add_argument(
        "--top", type=_arguments.positive, default=None, metavar="K", help="length of the lists judged (default: 20)"
    )


def add_recommend(commands: Any) -> None:
    """Adds ``recommend``."""
    text = "apply a trained recommender: the best items for each user, and why"
    parser = commands.add_parser(
        "recommend",
        help=text,
        description=text[0].upper() + text[1:] + ". Items a user is known to have are left out. Needs no torch.",
    )
    parser.add_argument(
        "--model", required=True, metavar="FOLDER", help="output folder of sage-attention train --task link"
    )
    parser.add_argument(
        "--users",
        metavar="FILE",
        help="CSV, TSV or Parquet with a column of users (default: all); those the "
        "model does not know are left out, with a warning",
    )
    add_encoding(parser)
    parser.add_argument(
        "--top", type=_arguments.positive, default=20, metavar="K", help="items for each user (default: 20)"
    )
    parser.add_argument(
        "--because", type=_arguments.count, default=3, metavar="N",
        help="neighbours named for each item, who added most to its score first (default: 3)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=_arguments.path, required=True, metavar="FILE",
        help="Parquet, or CSV if it ends in .csv: user, rank, item, score, basis, because_1, because_1_is, "
        "because_1_adds ...",
    )  # fmt: skip
    add_threads(parser)
    parser.set_defaults(run=_recommend)


def train(arguments: argparse.Namespace) -> int:
    """Runs ``train --task link``.

    Raises:
        SageAttentionError: An argument or a file is wrong, or results cannot be written.
    """
    if arguments.interactions is None:
        raise ArgumentError("--interactions", "a file", "nothing", "see sage-attention train --help")
    refuse_earlier_results(arguments)
    files = [f for f in (arguments.interactions, arguments.test, arguments.social) if f is not None]
    if not arguments.quiet:
        say("reading " + ", ".join(files))  # before the seconds that loading torch takes
    need_torch()
    from sage_attention.recipes.link import train_recommender
    from sage_attention.recipes.link_dataset import load_interactions
    from sage_attention.recipes.link_model import LinkConfig
    from sage_attention.recipes.link_tables import InteractionTable, read_interactions
    from sage_attention.recipes.link_trainer import LinkOptions

    fan_outs = arguments.fan_outs or (10,) * arguments.layers
    if len(fan_outs) != arguments.layers:
        raise ArgumentError("--fan-outs", f"one number per layer ({arguments.layers})", len(fan_outs))
    if arguments.channels % arguments.heads:
        raise ArgumentError("--heads", f"a divisor of --channels ({arguments.channels})", arguments.heads)

    def read(file: str) -> InteractionTable:
        return read_interactions(
            file, user=arguments.user_column, item=arguments.item_column, weight=arguments.weight_column,
            time=arguments.time_column, layout=arguments.layout, encoding=arguments.encoding,
        )  # fmt: skip

    data = load_interactions(
        read(arguments.interactions), None if arguments.test is None else read(arguments.test), arguments.social,
        how=arguments.divide, split=arguments.split, seed=arguments.seed, encoding=arguments.encoding,
    )  # fmt: skip
    if not arguments.quiet:
        say(data.summary())
        for note in data.notes:
            say(note)
    by_loss = {
        name: value if getattr(arguments, name) is None else getattr(arguments, name)
        for name, value in BY_LOSS[arguments.loss].items()
    }
    config = LinkConfig(
        data.num_users,
        data.num_items,
        channels=arguments.channels,
        heads=arguments.heads,
        layers=arguments.layers,
        similarity="cosine" if arguments.loss == "softmax" else "dot",
    )
    options = LinkOptions(
        epochs=arguments.epochs,
        patience=arguments.patience,
        batch_size=arguments.batch_size,
        fan_outs=fan_outs,
        learning_rate=arguments.learning_rate,
        attention_dropout=arguments.attention_dropout,
        loss=arguments.loss,
        k=arguments.top,
        seed=arguments.seed,
        num_threads=threads(arguments),
        **by_loss,
    )
    result = train_recommender(
        data, arguments.out, config, options,
        title=f"Recommendation from {Path(files[0]).name}", command=arguments.typed,
        data_files={file: system_path(file).stat().st_size for file in files},
        resume=arguments.resume, quiet=arguments.quiet,
    )  # fmt: skip
    if not arguments.quiet:
        _tell(result.folder, result.metrics, options.k)
    return 0


def _tell(folder: Path, metrics: dict[str, Any], k: int) -> None:
    for part, name in (("test", "test"), ("val", "validation")):
        if metrics.get(f"{part}_users"):
            shown = (metrics[f"{part}_recall@{k}"], metrics[f"{part}_ndcg@{k}"], metrics[f"{part}_mrr"])
            say(f"{name} recall@{k} {shown[0]:.4f}  NDCG@{k} {shown[1]:.4f}  MRR {shown[2]:.4f}")
            break
    say(f"report: {shown_path(folder / 'report.html')}")


def _recommend(arguments: argparse.Namespace) -> int:
    from sage_attention.recipes.link_recommend import recommend

    users, rows, unknown = recommend(
        arguments.model, arguments.out, users=arguments.users, top=arguments.top, because=arguments.because,
        num_threads=arguments.threads or 0, encoding=arguments.encoding,
    )  # fmt: skip
    if not arguments.quiet:
        say(f"{counted(rows, 'row')} for {counted(users, 'user')}: {arguments.out}")
    if unknown:
        complain("warning: " + unknown)
    return 0
