"""Finds and loads the native library; the only user of ctypes.

Everything here mirrors ``core/include/sage_attention.h``. Callers check their arguments first; a status other
than OK becomes an exception with the library's own message.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._paths import system_path
from .errors import ArgumentError, NativeError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "FLOAT32",
    "FLOAT64",
    "GUIDES",
    "SCORES",
    "STRATEGIES",
    "TABLE_KINDS",
    "Gradients",
    "GraphArgument",
    "Guide",
    "GuidedHop",
    "HeteroSample",
    "HeteroSampling",
    "NodeType",
    "Problem",
    "RawGradients",
    "RawProblem",
    "Relation",
    "Result",
    "Sample",
    "SampledRelation",
    "SampledType",
    "Sampling",
    "Transposed",
    "Walking",
    "address",
    "check",
    "library",
    "pack_gradients",
    "pack_of_graph",
    "pack_out",
    "pack_plain_problem",
    "pack_problem",
    "pack_result",
    "pack_transposed",
]

ABI_VERSION = 7
_VARIABLE = "SAGE_ATTENTION_LIBRARY"
_INVALID_ARGUMENT, _OUT_OF_MEMORY, _UNSUPPORTED = 1, 2, 3
FLOAT32, FLOAT64 = 0, 1
INT32, INT64 = 0, 1
TABLE_KINDS = {"plain": 0, "float16": 1, "bfloat16": 2, "int8": 3}
SCORES = {"gat": 0, "gatv2": 1, "dot": 2}
STRATEGIES = {"uniform": 0, "last": 1, "labor": 2, "labor_sequential": 3, "recency": 4}
GUIDES = {"top_attention": 0, "importance": 1}


class GraphArgument(Structure):
    """``sage_attention_graph``."""

    _fields_ = [
        ("indptr", c_void_p),
        ("indices", c_void_p),
        ("num_targets", c_int64),
        ("num_sources", c_int64),
        ("num_edges", c_int64),
        ("index_type", c_int32),
        ("trusted", c_int32),
    ]


class Sampling(Structure):
    """``sage_attention_sampling``."""

    _fields_ = [("seed", c_uint64), ("fan_out", c_int64), ("replace", c_int32), ("hop", c_uint32)]


class Sample(Structure):
    """``sage_attention_sample``."""

    _fields_ = [
        ("num_nodes", c_int64),
        ("num_edges", c_int64),
        ("num_hops", c_int64),
        ("num_expanded", c_int64),
        ("nodes", c_void_p),
        ("indptr", c_void_p),
        ("sources", c_void_p),
        ("edge_ids", c_void_p),
        ("num_sampled_nodes", c_void_p),
        ("num_sampled_edges", c_void_p),
    ]


class NodeType(Structure):
    """``sage_attention_node_type``."""

    _fields_ = [("num_nodes", c_int64), ("seeds", c_void_p), ("num_seeds", c_int64), ("seed_times", c_void_p)]


class Relation(Structure):
    """``sage_attention_relation``."""

    _fields_ = [
        ("graph", GraphArgument),
        ("source_type", c_int32),
        ("target_type", c_int32),
        ("fan_outs", c_void_p),
        ("edge_times", c_void_p),
        ("weight_sums", c_void_p),
        ("edge_ids", c_void_p),
    ]


class HeteroSampling(Structure):
    """``sage_attention_hetero_sampling``."""

    _fields_ = [
        ("struct_size", c_int64),
        ("seed", c_uint64),
        ("num_hops", c_int64),
        ("window", c_int64),
        ("replace", c_int32),
        ("disjoint", c_int32),
        ("strategy", c_int32),
        ("strict", c_int32),
        ("num_threads", c_int32),
        ("reserved", c_int32),
        ("decay", c_double),
    ]


class Walking(Structure):
    """``sage_attention_walking``."""

    _fields_ = [
        ("struct_size", c_int64),
        ("seed", c_uint64),
        ("length", c_int64),
        ("num_walks", c_int64),
        ("restart", c_double),
        ("p", c_double),
        ("q", c_double),
        ("num_threads", c_int32),
        ("reserved", c_int32),
    ]


class SampledType(Structure):
    """``sage_attention_sampled_type``."""

    _fields_ = [("num_nodes", c_int64), ("nodes", c_void_p), ("trees", c_void_p), ("num_sampled_nodes", c_void_p)]


class SampledRelation(Structure):
    """``sage_attention_sampled_relation``."""

    _fields_ = [
        ("num_edges", c_int64),
        ("sources", c_void_p),
        ("targets", c_void_p),
        ("edge_ids", c_void_p),
        ("num_sampled_edges", c_void_p),
    ]


class HeteroSample(Structure):
    """``sage_attention_hetero_sample``."""

    _fields_ = [
        ("num_types", c_int64),
        ("num_relations", c_int64),
        ("types", POINTER(SampledType)),
        ("relations", POINTER(SampledRelation)),
    ]


class Guide(Structure):
    """``sage_attention_guide``."""

    _fields_ = [
        ("struct_size", c_int64),
        ("strategy", c_int32),
        ("dtype", c_int32),
        ("heads", c_int64),
        ("source_logits", c_void_p),
        ("target_logits", c_void_p),
        ("edge_logits", c_void_p),
        ("edge_ids", c_void_p),
        ("negative_slope", c_double),
    ]


class GuidedHop(Structure):
    """``sage_attention_guided_hop``."""

    _fields_ = [(name, c_void_p) for name in ("indptr", "sources", "edge_ids", "probabilities", "row_max", "rest_sum")]


class Problem(Structure):
    """``sage_attention_problem``."""

    _fields_ = [
        ("struct_size", c_int64),
        ("score", c_int32),
        ("dtype", c_int32),
        ("graph", GraphArgument),
        ("edge_ids", c_void_p),
        ("num_edge_rows", c_int64),
        ("targets", c_void_p),
        ("num_rows", c_int64),
        ("sampling", Sampling),
        ("heads", c_int64),
        ("channels", c_int64),
        ("edge_channels", c_int64),
        ("negative_slope", c_double),
        ("scale", c_double),
        ("dropout", c_double),
        ("dropout_seed", c_uint64),
        ("values", c_void_p),
        ("keys", c_void_p),
        ("queries", c_void_p),
        ("source_logits", c_void_p),
        ("target_logits", c_void_p),
        ("attention", c_void_p),
        ("edge_features", c_void_p),
        ("edge_weight", c_void_p),
        ("edge_queries", c_void_p),
        ("bias", c_void_p),
        ("num_threads", c_int32),
        ("weights_before_dropout", c_int32),
        ("values_kind", c_int32),
        ("keys_kind", c_int32),
        ("value_scales", c_void_p),
        ("key_scales", c_void_p),
    ]


class Result(Structure):
    """``sage_attention_result``."""

    _fields_ = [
        (name, c_void_p)
        for name in ("out", "edge_out", "row_max", "row_sum", "positive_out", "positive_sum", "weights")
    ]


class Transposed(Structure):
    """``sage_attention_transposed``."""

    _fields_ = [("indptr", c_void_p), ("indices", c_void_p), ("positions", c_void_p)]


class Gradients(Structure):
    """``sage_attention_gradients``."""

    _fields_ = [
        (name, c_void_p)
        for name in (
            "out",
            "edge_out",
            "weights",
            "values",
            "keys",
            "queries",
            "source_logits",
            "target_logits",
            "attention",
            "edge_features",
            "edge_weight",
            "edge_queries",
            "bias",
        )
    ]


class RawProblem(Structure):
    """``sage_attention_raw_problem``."""

    _fields_ = [
        ("struct_size", c_int64),
        ("dtype", c_int32),
        ("num_threads", c_int32),
        ("graph", GraphArgument),
        ("edge_ids", c_void_p),
        ("heads", c_int64),
        ("features", c_int64),
        ("channels", c_int64),
        ("table", c_void_p),
        ("num_table_rows", c_int64),
        ("row_ids", c_void_p),
        ("target_table", c_void_p),
        ("num_target_table_rows", c_int64),
        ("target_row_ids", c_void_p),
        ("source_weight", c_void_p),
        ("target_weight", c_void_p),
        ("target_logits", c_void_p),
        ("projection", c_void_p),
        ("bias", c_void_p),
        ("negative_slope", c_double),
        ("dropout", c_double),
        ("dropout_seed", c_uint64),
    ]


class RawGradients(Structure):
    """``sage_attention_raw_gradients``."""

    _fields_ = [
        (name, c_void_p)
        for name in ("out", "row_max", "row_sum", "source_weight", "target_weight", "target_logits", "projection")
    ]


_FORMATS = {c_void_p: "P", c_int32: "i", c_uint32: "I", c_int64: "q", c_uint64: "Q", c_double: "d"}


def _formats(structure: type[Structure]) -> dict[str, str]:
    """A structure's fields as module `struct` writes them, those of structures inside in their places."""
    formats = {}
    for field in structure._fields_:
        kind: Any = field[1]
        formats[field[0]] = _FORMATS[kind] if kind in _FORMATS else "".join(_formats(kind).values())
    return formats


def _packer(formats: dict[str, str], zero: tuple[str, ...] = ()) -> Callable[..., bytes]:
    parts = (f"{struct.calcsize(f)}x" if name in zero else f for name, f in formats.items())
    return struct.Struct("".join(parts)).pack


# All fields in order -> the structure as bytes, many times faster than ctypes fills one in; no address is 0. The
# library's `packed_forward` and `packed_backward` take these. Whoever calls them keeps alive what the addresses are of.
pack_problem = _packer(_formats(Problem))
pack_result = _packer(_formats(Result))
pack_transposed = _packer(_formats(Transposed))
pack_gradients = _packer(_formats(Gradients))

# The same for problems in which all in-edges of a graph are attended, without options: the fields that are the graph's,
# as bytes; then score, dtype, those bytes, heads, channels and so on. What is left out is 0.
_OF_GRAPH = ("graph", "edge_ids", "num_edge_rows", "targets", "num_rows", "sampling")
_NOT_PLAIN = (
    *("edge_channels", "dropout", "dropout_seed", "edge_features", "edge_weight", "edge_queries"),
    *("weights_before_dropout", "values_kind", "keys_kind", "value_scales", "key_scales"),
)
_of_graph = {name: f for name, f in _formats(Problem).items() if name in _OF_GRAPH}
_plain = {**_formats(Problem), **dict.fromkeys(_OF_GRAPH, "")}
_plain["graph"] = f"{struct.calcsize(''.join(_of_graph.values()))}s"
pack_of_graph = _packer(_of_graph)
pack_plain_problem = _packer(_plain, _NOT_PLAIN)
pack_out = _packer(_formats(Result), tuple(_formats(Result))[1:])

# name -> (result type, argument types)
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "sage_attention_version": (c_char_p, []),
    "sage_attention_abi_version": (c_int32, []),
    "sage_attention_last_error": (c_char_p, []),
    "sage_attention_cpu_level": (c_char_p, []),
    "sage_attention_set_cpu_level": (c_int32, [c_char_p]),
    "sage_attention_available_cpu_level": (c_char_p, [c_int32]),
    "sage_attention_default_num_threads": (c_int32, []),
    "sage_attention_check_graph": (c_int32, [POINTER(GraphArgument), c_int32]),
    "sage_attention_coo_to_csc": (
        c_int32,
        [c_void_p, c_void_p, c_int32, c_int64, c_int64, c_int64, c_void_p, c_void_p, c_void_p],
    ),
    "sage_attention_transpose": (c_int32, [POINTER(GraphArgument), c_void_p, c_void_p, c_void_p]),
    "sage_attention_sample_one_hop": (
        c_int32,
        [
            POINTER(GraphArgument),
            POINTER(Sampling),
            c_void_p,
            c_int64,
            c_void_p,
            c_void_p,
            c_void_p,
            c_int64,
            c_int32,
        ],
    ),
    "sage_attention_workspace_create": (c_void_p, []),
    "sage_attention_workspace_free": (None, [c_void_p]),
    "sage_attention_sample_hops": (
        c_int32,
        [
            POINTER(GraphArgument),
            c_void_p,
            c_void_p,
            c_int64,
            c_void_p,
            c_int64,
            c_int32,
            c_uint64,
            c_int32,
            POINTER(POINTER(Sample)),
        ],
    ),
    "sage_attention_sample_free": (None, [POINTER(Sample)]),
    "sage_attention_sample_hetero": (
        c_int32,
        [
            POINTER(NodeType),
            c_int32,
            POINTER(Relation),
            c_int32,
            POINTER(HeteroSampling),
            c_void_p,
            POINTER(POINTER(HeteroSample)),
        ],
    ),
    "sage_attention_hetero_sample_free": (None, [POINTER(HeteroSample)]),
    "sage_attention_weight_sums": (c_int32, [POINTER(GraphArgument), c_void_p, c_void_p, c_double, c_void_p, c_int32]),
    "sage_attention_random_walk": (
        c_int32,
        [POINTER(GraphArgument), c_void_p, POINTER(Walking), c_void_p, c_int64, c_void_p, c_void_p],
    ),
    "sage_attention_sample_guided": (
        c_int32,
        [
            POINTER(GraphArgument),
            POINTER(Sampling),
            POINTER(Guide),
            c_void_p,
            c_int64,
            POINTER(GuidedHop),
            c_int64,
            c_int32,
        ],
    ),
    "sage_attention_forward": (c_int32, [POINTER(Problem), POINTER(Result)]),
    "sage_attention_backward": (
        c_int32,
        [POINTER(Problem), POINTER(Result), POINTER(Transposed), POINTER(Gradients)],
    ),
    "sage_attention_aggregate": (
        c_int32,
        [POINTER(GraphArgument), c_int32, c_void_p, c_void_p, c_int32, c_void_p, c_int64, c_void_p, c_int32],
    ),
    "sage_attention_raw_forward": (c_int32, [POINTER(RawProblem), c_void_p, c_void_p, c_void_p]),
    "sage_attention_raw_backward": (c_int32, [POINTER(RawProblem), POINTER(RawGradients)]),
}

_at: Any = ctypes.c_char.from_buffer

_lock = threading.Lock()
_library: ctypes.CDLL | None = None


def _path() -> Path:
    """The library beside this file, or the one named by SAGE_ATTENTION_LIBRARY."""
    named = os.environ.get(_VARIABLE)
    if named and sys.platform == "win32":
        return Path(os.path.abspath(named))  # noqa: PTH100 - Path.absolute leaves "C:name" as it is
    if named:
        return Path(named).absolute()
    suffix = {"win32": ".dll", "cygwin": ".dll", "darwin": ".so"}.get(sys.platform, ".so")
    return Path(__file__).absolute().parent / f"sage_attention{suffix}"


def _load() -> ctypes.CDLL:
    path = _path()
    named = bool(os.environ.get(_VARIABLE))
    remedy = f"unset {_VARIABLE}, or let it name the right file" if named else "reinstall sage-graph-attention"
    try:
        if not system_path(path).is_file():
            got = "a folder" if system_path(path).is_dir() else "no such file"
            raise NativeError(f"native library: expected {path}, got {got}; {remedy}")
        # An absolute path: the loader then looks nowhere else, and no search path is touched.
        loaded = ctypes.CDLL(str(system_path(path)))
    except (OSError, ValueError) as error:
        raise NativeError(
            f"native library: {path} cannot be loaded: {error}; is it for this platform? If not, {remedy}"
        ) from error
    # The ABI first, so that a library of another version is told as such.
    for name in ("sage_attention_abi_version", *_SIGNATURES):
        result, arguments = _SIGNATURES[name]
        try:
            function = getattr(loaded, name)
        except AttributeError as error:
            raise NativeError(f"native library: {path} has no {name}: it is another library; {remedy}") from error
        function.restype = result
        function.argtypes = arguments
        if name == "sage_attention_abi_version" and (version := function()) != ABI_VERSION:
            raise NativeError(f"native library: expected ABI {ABI_VERSION}, got {version} from {path}; {remedy}")
    for name in ("forward", "backward"):  # once more, without types to convert to: they take bytes as they are
        setattr(loaded, f"packed_{name}", loaded[f"sage_attention_{name}"])
    return loaded


def library() -> ctypes.CDLL:
    """The native library, loaded on first use.

    Raises:
        NativeError: It is missing, cannot be loaded, or has another ABI.
    """
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def check(status: int) -> None:
    """Turns a status into an exception.

    Raises:
        ArgumentError: The library refused an argument.
        MemoryError: It found no memory.
        NativeError: Anything else.
    """
    if status == 0:
        return
    message = library().sage_attention_last_error().decode("utf-8", "replace")
    if status == _INVALID_ARGUMENT:
        name, _, rest = message.partition(": expected ")
        expected, _, got = rest.partition(", got ")
        if got:
            raise ArgumentError(name, expected, got)
        raise ArgumentError("argument", "one the native library takes", message)
    if status == _OUT_OF_MEMORY:
        raise MemoryError(message)
    raise NativeError(message)


def address(array: NDArray[Any] | None) -> int | None:
    """Address of a C-contiguous array's data, None for None.

    The caller keeps the array alive for as long as the address is used.
    """
    if array is None:
        return None
    flags = array.flags
    if not flags.c_contiguous:
        raise ArgumentError("array", "a C-contiguous array", f"strides {array.strides}")
    if flags.writeable:
        try:
            return ctypes.addressof(
                _at(array)
            )  # three times faster than what follows; wants bytes, and to write to them
        except (TypeError, ValueError):
            pass
    return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


def float_type(dtype: np.dtype[Any]) -> int | None:
    """The ABI's number of a NumPy float type; None if the core does not compute in it."""
    return {("f", 4): FLOAT32, ("f", 8): FLOAT64}.get((dtype.kind, dtype.itemsize))


def index_type(dtype: np.dtype[Any]) -> int | None:
    """The ABI's number of a NumPy index type; None if it is neither int32 nor int64."""
    return {("i", 4): INT32, ("i", 8): INT64}.get((dtype.kind, dtype.itemsize))


def cpu_level() -> str:
    """The CPU level the kernels run at, e.g. ``"avx2"``."""
    return str(library().sage_attention_cpu_level().decode())


def available_cpu_levels() -> list[str]:
    """The levels this machine can run, lowest first."""
    levels: list[str] = []
    while True:
        name = library().sage_attention_available_cpu_level(len(levels))
        if name is None:
            return levels
        levels.append(name.decode())


def set_cpu_level(level: str) -> None:
    """Forces a CPU level, process-wide, for tests and measurements.

    Raises:
        ArgumentError: No level has that name.
        NativeError: This machine cannot run it.
    """
    check(library().sage_attention_set_cpu_level(level.encode()))


def default_num_threads() -> int:
    """Number of cores that ``num_threads=0`` stands for."""
    return int(library().sage_attention_default_num_threads())
