"""``sage-attention bench``: its options and what it runs; what measures is imported when it is asked for."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from sage_attention import _arguments
from sage_attention.errors import ArgumentError
from sage_attention.recipes.command_parts import add_encoding, say

if TYPE_CHECKING:
    from pathlib import Path

    from sage_attention.bench.measure import Plan
    from sage_attention.bench.result import Result
    from sage_attention.graph import Graph

__all__ = ["add_bench"]

_GRAPHS = ("G1", "G2", "G3")  # those of graphs.py, which needs NumPy
_SECONDS, _SECONDS_COMPILING, _SECONDS_QUICK = 120.0, 600.0, 20.0
_QUICK = (2_000, 20_000)  # nodes, edges
_ROUNDS, _ROUNDS_QUICK = 11, 3

_ABOUT = """\
Measures on this machine, in two minutes, what it costs to read the rows of the neighbours at all (the gather limit),
how near to it attention comes, forward and backward, and how long sampling takes; and, where they are installed,
PyTorch Geometric and pyg-lib's sampler beside it. Contenders take turns, and their results are compared before anything
is timed.
"""
_EXAMPLES = """\
examples:
  sage-attention bench                                     a generated graph, 1 thread and all
  sage-attention bench --edges edges.csv --undirected      your own graph
  sage-attention bench --compile --plot bench.html         torch.compile too, and a page
  sage-attention bench --json - > bench.json               for scripts

exit code: 0 done, 1 out of memory, 2 wrong usage, file or result, 130 after Ctrl-C, which shows what there is so far
"""


def add_bench(commands: Any) -> None:
    """Adds ``bench`` to the command line.

    Args:
        commands: What ``ArgumentParser.add_subparsers`` gave.
    """
    parser = commands.add_parser(
        "bench",
        help="how fast this machine attends and samples, beside its gather limit and PyTorch Geometric",
        description=_ABOUT,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = parser.add_argument_group("graph")
    data.add_argument(
        "--edges", metavar="FILE", help="CSV, TSV, Parquet, NPY or NPZ: source, target (default: a generated graph)"
    )
    data.add_argument("--undirected", action="store_true", help="take every edge in both directions")
    add_encoding(data)
    data.add_argument(
        "--graph", choices=_GRAPHS, default=None,
        help="generated: G1 170,000 nodes and 1.2 million edges, G2 233,000 and 20 million, G3 2.45 and 124 million "
        "(default: G1)",
    )  # fmt: skip
    data.add_argument("--heads", type=_arguments.channels, default=8, metavar="N", help="default: 8")
    data.add_argument(
        "--channels", type=_arguments.channels, default=16, metavar="N", help="of each head (default: 16)"
    )
    run = parser.add_argument_group("run")
    run.add_argument(
        "--threads", type=_arguments.thread_counts, default=None, metavar="N,N",
        help="numbers of threads, up to 1024 (default: 1 and one per core)",
    )  # fmt: skip
    run.add_argument(
        "--time-limit", type=_arguments.time_limit, default=None, metavar="SECONDS",
        help="begin nothing after it (default: 120; with --compile 600, with --quick 20)",
    )  # fmt: skip
    run.add_argument(
        "--no-pyg", action="store_true", help="leave PyTorch Geometric and pyg-lib out, also where they are installed"
    )
    run.add_argument("--compile", action="store_true", help="PyTorch Geometric under torch.compile too")
    run.add_argument(
        "--quick", action="store_true", help="a small graph, unless --edges or --graph says another, and few rounds"
    )
    run.add_argument("--seed", type=_arguments.seed, default=0, metavar="N", help="of features and seeds (default: 0)")
    out = parser.add_argument_group("results")
    out.add_argument(
        "--json", type=_arguments.path, metavar="FILE|-", help="write all figures there; -: print them, and no table"
    )
    out.add_argument(
        "--plot", type=_arguments.path, metavar="FILE", help="a page if it ends in .html, a drawing if in .svg"
    )
    out.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    if arguments.edges is not None and arguments.graph is not None:
        raise ArgumentError("--edges", "no --graph beside it", "both")
    if arguments.edges is None and (arguments.undirected or arguments.encoding is not None):
        option = "--undirected" if arguments.undirected else "--encoding"
        raise ArgumentError(option, "--edges beside it, whose edges it is about", "none")
    if arguments.compile and arguments.no_pyg:
        raise ArgumentError("--compile", "no --no-pyg beside it", "both")
    if arguments.heads * arguments.channels > _arguments.MOST_CHANNELS:
        expected = f"at most {_arguments.MOST_CHANNELS} channels in a layer"
        raise ArgumentError("--heads, --channels", expected, arguments.heads * arguments.channels)
    files = _files(arguments)
    from sage_attention.bench.machine import free_memory, machine
    from sage_attention.bench.measure import groups, measure
    from sage_attention.bench.problem import Problem, check_memory
    from sage_attention.bench.result import LeftOut, Result
    from sage_attention.recipes.interrupts import undisturbed
    from sage_attention.recipes.progress import Progress

    name, graph = _graph(arguments, free_memory())
    check_memory(max(graph.num_targets, graph.num_sources), arguments.heads, arguments.channels, free_memory())
    problem = Problem(name, graph, arguments.heads, arguments.channels, arguments.seed)
    plan, why = _plan(arguments, started)
    settings = {
        "heads": arguments.heads, "channels": arguments.channels, "threads": list(plan.threads), "seed": arguments.seed,
        "most_rounds": plan.most_rounds, "time_limit_s": _limit(arguments), "peers": list(plan.peers),
        "command": arguments.typed,
    }  # fmt: skip
    result = Result(problem, machine(), settings)
    if why:
        result.left_out.append(LeftOut("PyTorch Geometric", why))
    try:
        with Progress(groups(plan), "group", quiet=arguments.quiet, stream=sys.stderr) as progress:
            progress.note(f"{name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges")
            measure(problem, plan, result, progress)
    except KeyboardInterrupt:
        result.interrupted = True
        with undisturbed(forget=True):  # it is being stopped already
            _finish(result, arguments, files, started)
        raise
    _finish(result, arguments, files, started)
    return 0


def _files(arguments: argparse.Namespace) -> dict[str, Path]:
    """Where results are to be written; looked at before the minutes that measuring takes."""
    from sage_attention.recipes.apply import output_file

    suffixes = {"json": (".json",), "plot": (".html", ".svg")}
    found = {}
    for option, allowed in suffixes.items():
        given = getattr(arguments, option)
        if given is None or (option == "json" and given == "-"):
            continue
        if option == "plot" and not given.lower().endswith(allowed):
            raise ArgumentError("--plot", "a file name that ends in .html or .svg", repr(given))
        found[option] = output_file(given, allowed, (arguments.edges,))
    if len(found) == 2 and found["json"] == found["plot"]:
        raise ArgumentError("--plot", "another file than --json", repr(arguments.plot))
    return found


def _graph(arguments: argparse.Namespace, free: int | None) -> tuple[str, Graph]:
    """The graph and its name.

    Raises:
        SageAttentionError: The file is wrong, or the arrays of the generated graph will not fit into memory.
    """
    from pathlib import Path

    from sage_attention.bench.graphs import GRAPHS, chung_lu, named
    from sage_attention.bench.problem import check_memory
    from sage_attention.graph import Graph

    if arguments.edges is not None:
        from sage_attention.recipes.dataset import load_dataset

        if not arguments.quiet:
            say("reading " + arguments.edges, sys.stderr)
        data = load_dataset(arguments.edges, undirected=arguments.undirected, encoding=arguments.encoding)
        return Path(arguments.edges).name, Graph.from_edge_index(data.edge_index, data.num_nodes)
    if arguments.quick and arguments.graph is None:
        return "quick", chung_lu(*_QUICK, seed=0)
    name = arguments.graph or _GRAPHS[0]
    check_memory(GRAPHS[name][0], arguments.heads, arguments.channels, free)  # before the time that making it takes
    if not arguments.quiet:
        say("generating " + name, sys.stderr)
    return name, named(name)


def _limit(arguments: argparse.Namespace) -> float:
    if arguments.time_limit is not None:
        return float(arguments.time_limit)
    usual = _SECONDS_COMPILING if arguments.compile else _SECONDS
    return _SECONDS_QUICK if arguments.quick and not arguments.compile else usual


def _plan(arguments: argparse.Namespace, started: float) -> tuple[Plan, str]:
    """What to measure, and why not PyTorch Geometric, if it was to be.

    Raises:
        ArgumentError: It is asked for by name and not there.
    """
    from sage_attention import _native
    from sage_attention.bench import peers
    from sage_attention.bench.machine import machine
    from sage_attention.bench.measure import Plan

    usable = min(_native.default_num_threads(), machine().usable_cores)
    counts = arguments.threads or tuple(sorted({1, usable}))
    why = "" if arguments.no_pyg else peers.missing()
    if why and arguments.compile:
        raise ArgumentError("--compile", "PyTorch Geometric beside it", "none", why)
    names: tuple[str, ...] = ()
    if not arguments.no_pyg and not why:
        names = (peers.EAGER, peers.COMPILED) if arguments.compile else (peers.EAGER,)
    rounds = _ROUNDS_QUICK if arguments.quick else _ROUNDS
    return Plan(counts, started + _limit(arguments), rounds, names), why


def _finish(result: Result, arguments: argparse.Namespace, files: dict[str, Path], started: float) -> None:
    """Shows and writes what there is."""
    from sage_attention.bench.machine import machine
    from sage_attention.bench.show import show

    result.seconds = time.monotonic() - started
    result.machine = machine()  # torch may have been loaded meanwhile
    if arguments.json == "-":
        import json

        from sage_attention._console import write

        write(json.dumps(result.document(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        show(result)
    for option, path in files.items():
        _write(option, path, result)
        if not arguments.quiet:
            say(f"{option}: {getattr(arguments, option)}", sys.stderr)


def _write(option: str, path: Path, result: Result) -> None:
    from sage_attention.bench.page import drawing, report_page
    from sage_attention.recipes.output import write_json, write_text

    if option == "json":
        write_json(path, result.document())
    elif path.suffix.lower() == ".svg":
        write_text(path, drawing(result))
    else:
        write_text(path, report_page(result, time.strftime("%Y-%m-%d %H:%M")))
