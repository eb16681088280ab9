"""``sage-attention``: the command line. A command's module is imported only when it is asked for.

Exit codes: 0 done, 1 out of memory, 2 wrong usage, input or output folder, 128 + number when a signal asked it to end
(130 after Ctrl-C).
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any, Callable

from . import __version__, _arguments
from ._paths import shown_path, system_path
from .bench import command as bench
from .errors import ArgumentError, SageAttentionError, counted
from .recipes import link_commands
from .recipes.command_parts import (
    add_encoding,
    add_repeat_options,
    add_run_options,
    add_threads,
    complain,
    fill,
    need_torch,
    refuse_earlier_results,
    say,
    threads,
)
from .toolchain import commands as toolchain
from .toolchain.help_language import translate_help

__all__ = ["main"]

_NOT_THE_OTHER = (
    "Attention over sampled neighbours of large graphs. (Not sageattention, the quantised attention kernels.)"
)


# What the options of train are where they are not typed; one that belongs to one task alone is refused with the other.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "node": {
        "edges": None, "features": None, "labels": None, "data": None, "undirected": False, "split": (0.6, 0.2, 0.2),
        "hidden": 8, "heads": 8, "output_heads": 1, "normalize": "none", "fan_outs": None, "patience": 20,
        "learning_rate": 0.01, "weight_decay": 2e-4, "dropout": 0.5,
    },
    "link": link_commands.DEFAULTS,
}  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """Prints its help and its errors on any console."""

    def _print_message(self, message: str, file: Any = None) -> None:
        from ._console import SafeStream

        out = SafeStream(sys.stderr if file is None else file)
        out.write(message or "")
        out.flush()


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("model")
    model.add_argument("--layers", type=_arguments.layers, default=2, metavar="N", help="attention layers (default: 2)")
    model.add_argument(
        "--hidden", type=_arguments.channels, default=None, metavar="N", help="node: channels per head (default: 8)"
    )
    model.add_argument(
        "--heads", type=_arguments.channels, default=None, metavar="N",
        help="attention heads of a layer (default: 8; link: 1)",
    )  # fmt: skip
    model.add_argument(
        "--output-heads", type=_arguments.channels, default=None, metavar="N",
        help="node: heads of the last layer (default: 1)",
    )  # fmt: skip
    model.add_argument(
        "--normalize", choices=("none", "row"), default=None,
        help="node: row: divide each row of the features by its sum (default: none)",
    )  # fmt: skip
    training = parser.add_argument_group("training")
    training.add_argument(
        "--epochs", type=_arguments.positive, default=100, metavar="N", help="most epochs (default: 100)"
    )
    training.add_argument(
        "--patience", type=_arguments.positive, default=None, metavar="N",
        help="stop after N epochs in which neither accuracy nor loss on the validation nodes was as good as the best "
        "before (default: 20); link: in which recall on the validation pairs was no better (default: 10)",
    )  # fmt: skip
    training.add_argument(
        "--batch-size", type=_arguments.positive, default=2048, metavar="N",
        help="nodes or pairs per step (default: 2048)",
    )  # fmt: skip
    training.add_argument(
        "--fan-outs", type=_arguments.fan_outs, default=None, metavar="N,N",
        help="neighbours sampled per node, one number per layer; -1 is all (default: 10 for each)",
    )  # fmt: skip
    training.add_argument(
        "--learning-rate", type=_arguments.rate, default=None, metavar="X", help="of Adam (default: 0.01; link: 0.005)"
    )
    training.add_argument(
        "--weight-decay", type=_arguments.rate, default=None, metavar="X", help="node: of Adam (default: 0.0002)"
    )
    training.add_argument(
        "--dropout", type=_arguments.chance, default=None, metavar="X",
        help="node: of the layers' inputs (default: 0.5)",
    )  # fmt: skip
    training.add_argument(
        "--attention-dropout", type=_arguments.chance, default=0.0, metavar="X",
        help="of the attention weights (default: 0)",
    )  # fmt: skip
    add_run_options(training)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sage-attention", description=_NOT_THE_OTHER)
    parser.add_argument("--version", action="version", version=f"sage-attention {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    train = commands.add_parser(
        "train",
        help="train a node classifier or a recommender on your graph",
        description="Trains a graph attention network on sampled neighbours and writes the model, metrics and a "
        "report; with --task node, which is the default, predictions and embeddings too.",
        epilog="Columns are known by their names, or by their order where there is no header.",
    )
    train.add_argument(
        "--task", choices=tuple(_DEFAULTS), default="node",
        help="node: which class is a node of; link: which items will a user use (default: node)",
    )  # fmt: skip
    data = train.add_argument_group("data (--task node)")
    data.add_argument("--edges", metavar="FILE", help="CSV, TSV, Parquet, NPY or NPZ: source, target")
    data.add_argument(
        "--features", metavar="FILE",
        help="CSV, TSV or Parquet: node, then numbers; NPY or SciPy NPZ: a row per node; or JSON of id -> active "
        "indices (default: the model sees each node's number of neighbours)",
    )  # fmt: skip
    data.add_argument("--labels", metavar="FILE", help="CSV, TSV, Parquet or NPY: node, label[, split]")
    data.add_argument("--data", metavar="NPZ", help="one NPZ with edge_index, x (or x_indptr ...), y, train_idx ...")
    data.add_argument("--undirected", action="store_true", help="take every edge in both directions")
    data.add_argument(
        "--split", type=_arguments.split, default=None, metavar="A,B,C",
        help="fractions of the labelled nodes for training, validation and test, drawn by --seed "
        "(default: 0.6,0.2,0.2); link: of the pairs (default: 0.8,0.1,0.1)",
    )  # fmt: skip
    link_commands.add_train_options(train)
    add_encoding(train)
    train.add_argument(
        "--out", type=_arguments.path, required=True, metavar="FOLDER", help="where everything is written"
    )
    add_repeat_options(train)
    _add_model_options(train)
    train.set_defaults(run=_train)

    for name, text, run in (
        ("predict", "apply a trained model: class and probability of every node", _predict),
        ("embed", "apply a trained model: an embedding of every node", _embed),
    ):
        apply = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ". Needs no torch.")
        apply.add_argument("--model", required=True, metavar="FOLDER", help="output folder of sage-attention train")
        apply.add_argument("--edges", required=True, metavar="FILE", help="as for train")
        apply.add_argument("--features", metavar="FILE", help="as for train")
        add_encoding(apply)
        apply.add_argument(
            "--undirected", action=argparse.BooleanOptionalAction, default=None, help="default: as in training"
        )
        apply.add_argument(
            "--out", type=_arguments.path, required=True, metavar="FILE",
            help="Parquet, or CSV if it ends in .csv: node, predicted, probability"
            if name == "predict"
            else "NPY; the ids of its rows go to <name>.ids.npy",
        )  # fmt: skip
        add_threads(apply)
        apply.set_defaults(run=run)

    link_commands.add_recommend(commands)
    demo = commands.add_parser(
        "demo",
        help="train on a generated social network, in a minute or two",
        description="Generates a social network, learns to recover their communities, and writes "
        "everything that train writes.",
    )
    demo.add_argument(
        "--out", type=_arguments.path, default="sage-attention-demo", metavar="FOLDER",
        help="default: sage-attention-demo",
    )  # fmt: skip
    demo.add_argument("--members", type=_arguments.members, default=50_000, metavar="N", help="default: 50000")
    add_repeat_options(demo)
    add_run_options(demo)
    demo.set_defaults(run=_demo)
    bench.add_bench(commands)
    toolchain.add_commands(commands)
    return parser


def _train(arguments: argparse.Namespace) -> int:
    fill(arguments, arguments.task, _DEFAULTS)
    if arguments.task == "link":
        return link_commands.train(arguments)
    files = [f for f in (arguments.data, arguments.edges, arguments.features, arguments.labels) if f is not None]
    if arguments.data is not None:
        if len(files) > 1:
            raise ArgumentError("--data", "no --edges, --features or --labels beside it", "both")
    else:
        for name in ("edges", "labels"):
            if getattr(arguments, name) is None:
                raise ArgumentError(f"--{name}", "a file", "nothing", "see sage-attention train --help")
    refuse_earlier_results(arguments)
    if not arguments.quiet:
        say("reading " + ", ".join(files))  # before the seconds that loading torch takes
    need_torch()
    from .recipes.dataset import load_dataset, load_npz_dataset

    if arguments.data is not None:
        data = load_npz_dataset(
            arguments.data, undirected=arguments.undirected, split=arguments.split, seed=arguments.seed
        )
    else:
        data = load_dataset(
            arguments.edges, arguments.features, arguments.labels,
            undirected=arguments.undirected, split=arguments.split, seed=arguments.seed, encoding=arguments.encoding,
        )  # fmt: skip
    if not arguments.quiet:
        say(data.summary())
    hints = data.hints(undirected=arguments.undirected, normalized=arguments.normalize != "none")
    if not arguments.quiet:
        for hint in hints:
            say("hint: " + hint)
    sizes = {file: system_path(file).stat().st_size for file in files}
    return _run_training(arguments, data, f"Node classification of {Path(files[0]).name}", sizes, hints)


def _run_training(
    arguments: argparse.Namespace, data: object, title: str, sizes: dict[str, int], notes: tuple[str, ...] = ()
) -> int:
    from .inference import ModelConfig
    from .recipes.node import train_node_classifier
    from .recipes.trainer import TrainingOptions

    fan_outs = arguments.fan_outs or (10,) * arguments.layers
    if len(fan_outs) != arguments.layers:
        raise ArgumentError("--fan-outs", f"one number per layer ({arguments.layers})", len(fan_outs))
    if arguments.heads * arguments.hidden > _arguments.MOST_CHANNELS:
        expected = f"at most {_arguments.MOST_CHANNELS} channels in a layer"
        raise ArgumentError("--heads, --hidden", expected, arguments.heads * arguments.hidden)
    config = ModelConfig(
        num_features=0,
        hidden=arguments.hidden,
        heads=arguments.heads,
        output_heads=arguments.output_heads,
        layers=arguments.layers,
        normalize=arguments.normalize,
        undirected=arguments.undirected,
    )
    options = TrainingOptions(
        epochs=arguments.epochs,
        patience=arguments.patience,
        batch_size=arguments.batch_size,
        fan_outs=fan_outs,
        learning_rate=arguments.learning_rate,
        weight_decay=arguments.weight_decay,
        dropout=arguments.dropout,
        attention_dropout=arguments.attention_dropout,
        seed=arguments.seed,
        num_threads=threads(arguments),
    )
    result = train_node_classifier(
        data, arguments.out, config, options,  # type: ignore[arg-type]
        title=title, command=arguments.typed, data_files=sizes, notes=notes, resume=arguments.resume,
        quiet=arguments.quiet,
    )  # fmt: skip
    if not arguments.quiet:
        _tell(result.folder, result.metrics)
    return 0


def _tell(folder: Path, metrics: dict[str, object]) -> None:
    accuracy = metrics["test_accuracy"]
    if isinstance(accuracy, float):
        say(f"test accuracy {accuracy:.4f}")
    say(f"report: {shown_path(folder / 'report.html')}")


def _demo(arguments: argparse.Namespace) -> int:
    refuse_earlier_results(arguments)
    need_torch()
    import numpy as np

    from .recipes.node_dataset import NodeDataset
    from .recipes.split import stratified_split
    from .recipes.synthetic import social_network

    network = social_network(arguments.members, seed=arguments.seed)
    train, val, test = stratified_split(network.labels, (0.6, 0.2, 0.2), arguments.seed)
    data = NodeDataset(
        np.arange(len(network.labels), dtype=np.int64), network.edge_index, network.features, network.labels,
        list(network.class_names), train, val, test,
    )  # fmt: skip
    if not arguments.quiet:
        say(
            f"a social network of {counted(data.num_nodes, 'member')} and {counted(data.num_edges, 'tie')}; "
            f"{len(train):,} members' communities are known, the others' are to be found"
        )
    defaults = _parser().parse_args(["train", "--out", arguments.out])
    fill(defaults, "node", _DEFAULTS)
    for name, value in vars(arguments).items():
        setattr(defaults, name, value)
    defaults.epochs, defaults.patience, defaults.dropout = 30, 6, 0.2
    return _run_training(defaults, data, "A social network and its communities", {})


def _apply(arguments: argparse.Namespace, function: Callable[..., int]) -> int:
    count = function(
        arguments.model, arguments.edges, arguments.features, arguments.out,
        undirected=arguments.undirected, num_threads=arguments.threads or 0, encoding=arguments.encoding,
    )  # fmt: skip
    if not arguments.quiet:
        say(f"{counted(count, 'node')}: {arguments.out}")
    return 0


def _predict(arguments: argparse.Namespace) -> int:
    from .recipes.apply import predict

    return _apply(arguments, predict)


def _embed(arguments: argparse.Namespace) -> int:
    from .recipes.apply import embed

    return _apply(arguments, embed)


def _typed(words: list[str]) -> str:
    """The command as it was typed, for the report."""
    import shlex
    import subprocess

    return "sage-attention " + (subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words))


def _with_joined_negatives(words: list[str]) -> list[str]:
    """``--fan-outs -1,-1`` as ``--fan-outs=-1,-1``, for argparse takes a word that begins with ``-`` for an option."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-\.?[0-9]", word) and joined and re.fullmatch(r"--[a-z][a-z-]*", joined[-1]):
            joined[-1] += "=" + word
        else:
            joined.append(word)
    return joined


def _prepare_libraries() -> None:
    """Tells libraries, before they are loaded, what they can only be told then."""
    if "numpy" not in sys.modules:
        # The last bits of a BLAS depend on its number of threads, and so on the machine. We start our own instead.
        for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
            os.environ[name] = "1"
    # Intel's Fortran runtime, which comes with some builds of NumPy, would end the process on Ctrl-C by itself.
    os.environ.setdefault("FOR_DISABLE_CONSOLE_CTRL_HANDLER", "1")


def _run(arguments: argparse.Namespace) -> int:
    """Runs the command; what can go wrong through no fault of this program becomes a line and an exit code."""
    try:
        return int(arguments.run(arguments))
    except (SageAttentionError, OSError) as error:
        complain(str(error))
        return 2
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):  # torch's MemoryError
            raise
        reason = f" ({str(error).rpartition(': ')[2]})" if str(error) else ""
        complain(f"not enough memory{reason}; try a smaller --batch-size, --fan-outs or --hidden")
        return 1


def main(argv: list[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: The words after the command's name; those of the process by default, which is to end with this.

    Returns:
        The exit code.
    """
    _prepare_libraries()
    from .recipes.interrupts import as_interrupts, ignore

    with as_interrupts() as ended_by:
        try:
            words = sys.argv[1:] if argv is None else argv
            parser = _parser()
            translate_help(parser, words)
            arguments = parser.parse_args(_with_joined_negatives(words))
            arguments.typed = _typed(words)
            code = _run(arguments)
        except KeyboardInterrupt as stop:
            say(str(stop) or "interrupted", sys.stderr)
            code = 128 + (ended_by[0] if ended_by else signal.SIGINT)
        finally:
            _let_go_of_closed_pipe()
    if ended_by and argv is None:
        ignore()
    return code


def _let_go_of_closed_pipe() -> None:
    """What is still to be flushed into a closed pipe at exit must not become an error message then."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        sys.stdout = None


if __name__ == "__main__":
    sys.exit(main())
