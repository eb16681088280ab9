"""Applies a saved node classifier with NumPy alone: no torch, no sampling, every in-edge attended.

The trainer evaluates through the same code, so what it reports is what a saved model gives.
"""

from __future__ import annotations

import json
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Callable

import numpy as np

from ._native import default_num_threads
from ._paths import system_path
from .attention import aggregate, gat_attention
from .errors import ArgumentError, DataError, MissingDependencyError, counted
from .graph import Graph
from .reuse import empty

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from .quantized import QuantizedTable

    Floats = NDArray[np.float32]
    Keep = Callable[[Floats], Floats | QuantizedTable]

__all__ = ["ModelConfig", "NodeClassifier", "load_model", "with_self_loops"]

CONFIG_FILE = "config.json"
MODEL_FILE = "model.safetensors"
_FORMAT = 1
_MOST_LAYERS = 1000
_BLOCK_ROWS = 4096  # of a dense projection: fixed, so that results do not depend on the number of threads


def _is_count(value: Any) -> bool:
    return type(value) is int and value > 0


# What a config.json may hold: a model must not be half understood.
_FITS: dict[str, Callable[[Any], bool]] = {
    "model": lambda v: v == "gat",
    "num_features": _is_count,
    "class_names": lambda v: isinstance(v, list) and len(v) > 0 and all(isinstance(name, str) for name in v),
    "hidden": _is_count,
    "heads": _is_count,
    "output_heads": _is_count,
    "layers": lambda v: _is_count(v) and v <= _MOST_LAYERS,
    "negative_slope": lambda v: type(v) in (int, float) and math.isfinite(v),
    "normalize": lambda v: v in ("none", "row"),
    "undirected": lambda v: isinstance(v, bool),
    "features": lambda v: v in ("given", "degree"),
}


@dataclass(frozen=True)
class ModelConfig:
    """What a node classifier is, apart from its weights. It is what ``config.json`` holds.

    Attributes:
        num_features: F, columns of the feature matrix.
        class_names: The K classes.
        hidden: Channels per head of all layers but the last.
        heads: Heads of all layers but the last.
        output_heads: Heads of the last layer, whose mean is taken.
        layers: Number of layers.
        negative_slope: Of the LeakyReLU in the scores.
        normalize: ``"none"``, or ``"row"``: each feature row is divided by its sum.
        undirected: Whether edges were taken in both directions; the default when the model is applied.
        features: ``"given"``, or ``"degree"`` where there were none and the model reads in-degrees.
    """

    num_features: int
    class_names: list[str] = field(default_factory=list)
    hidden: int = 8
    heads: int = 8
    output_heads: int = 1
    layers: int = 2
    negative_slope: float = 0.2
    normalize: str = "none"
    undirected: bool = False
    features: str = "given"

    def layer_sizes(self) -> list[tuple[int, int, int]]:
        """(input columns, heads, channels per head) of each layer."""
        sizes = []
        columns = self.num_features
        for layer in range(self.layers):
            last = layer == self.layers - 1
            heads, channels = (self.output_heads, len(self.class_names)) if last else (self.heads, self.hidden)
            sizes.append((columns, heads, channels))
            columns = heads * channels
        return sizes

    def to_json(self) -> dict[str, Any]:
        """As ``config.json`` holds it."""
        return {"format": _FORMAT, "model": "gat", **asdict(self)}

    @classmethod
    def from_json(cls, path: Path, text: str) -> ModelConfig:
        """Reads ``config.json``.

        Raises:
            DataError: It is no JSON object, from another version, or lacks something.
        """
        try:
            value = json.loads(text)
            if type(value["format"]) is not int or value["format"] != _FORMAT:
                raise DataError(path, f"format {_FORMAT}", value["format"], hint="it is from another version")
            if value["model"] == "link":
                raise DataError(path, "a model that classifies nodes", "one of --task link", hint="use recommend")
            for name, fits in _FITS.items():
                if not fits(value[name]):
                    raise ValueError(f"{name} is {value[name]!r}")
            config = cls(**{f.name: value[f.name] for f in fields(cls)})
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            if isinstance(error, DataError):
                raise
            raise DataError(path, "the config.json of a trained model", f"{type(error).__name__}: {error}") from error
        return config


def with_self_loops(graph: Graph) -> Graph:
    """The graph with exactly one self loop per node, the last of its in-edges, as PyG's GATConv makes it.

    Args:
        graph: Sources and targets are the same nodes.

    Example:
        >>> with_self_loops(Graph([0, 1, 1], [1])).to_edge_index()
        array([[1, 0, 1],
               [0, 0, 1]])
    """
    graph.require_square("graph")
    targets = np.repeat(np.arange(graph.num_targets, dtype=graph.indices.dtype), graph.in_degrees)
    others = targets != graph.indices
    nodes = np.arange(graph.num_targets, dtype=graph.indices.dtype)
    edges = np.stack([np.r_[graph.indices[others], nodes], np.r_[targets[others], nodes]])
    sorted_graph = Graph.from_edge_index(edges, graph.num_targets)
    return Graph.from_trusted(sorted_graph.indptr, sorted_graph.indices, sorted_graph.num_sources)


def degree_features(degrees: NDArray[np.int64], num_features: int) -> Floats:
    """One-hot rows of the (binary) order of magnitude of each node's in-degree: features where there are none.

    Args:
        degrees: In-degrees of N nodes, self loops not counted.
        num_features: F; larger degrees share the last column.

    Returns:
        float32 [N, F].
    """
    order = np.minimum(np.frexp(degrees.astype(np.float64))[1], num_features - 1)
    return np.eye(num_features, dtype=np.float32)[order]


def _checked_csr(features: Any) -> Any:
    """SciPy sparse features as CSR whose indices are known to be in range.

    Raises:
        ArgumentError: They are not: SciPy does not look at the arrays a matrix is made of.
    """
    try:
        if hasattr(features, "check_format"):
            features.check_format(full_check=True)
        return features.tocsr()
    except ValueError as error:
        raise ArgumentError("features", "a valid sparse matrix", error) from error


def is_sparse(features: Any) -> bool:
    """Whether it is a SciPy CSR matrix or array."""
    return all(hasattr(features, name) for name in ("indptr", "indices", "data"))


def normalized(features: Any, how: str) -> Any:
    """float32 features, divided by their row sums with ``how="row"``; sparse ones stay sparse."""
    if how == "none":
        return features
    sums = np.asarray(features.sum(axis=1), dtype=np.float32).reshape(-1)
    factors = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums != 0)
    if is_sparse(features):
        result = features.copy()
        result.data = features.data * np.repeat(factors, np.diff(features.indptr))
        return result
    return features * factors[:, None]


def feature_graph(features: Any) -> Graph:
    """A sparse feature matrix as a graph from its columns to its rows, whose edge values are its entries."""
    return Graph.from_trusted(
        np.ascontiguousarray(features.indptr, dtype=np.int64),
        np.ascontiguousarray(features.indices, dtype=np.int32),
        int(features.shape[1]),
    )


def project(features: Any, weight: Floats, num_threads: int = 0) -> Floats:
    """``features @ weight.T``, the same to the last bit for any number of threads.

    (NumPy's own BLAS may have threads besides. The command line turns those off; they change the last bits.)

    Args:
        features: float32 [N, F], dense or SciPy CSR.
        weight: float32 [W, F].
        num_threads: 0 is one per core.

    Returns:
        float32 [N, W].
    """
    transposed = np.ascontiguousarray(weight.T)
    if is_sparse(features):
        data = np.ascontiguousarray(features.data, dtype=np.float32)
        return aggregate(feature_graph(features), transposed, data, num_threads=num_threads).astype(
            np.float32, copy=False
        )
    out: NDArray[np.float32] = empty((features.shape[0], weight.shape[0]), np.float32)

    def block(start: int) -> None:
        stop = start + _BLOCK_ROWS
        np.matmul(features[start:stop], transposed, out=out[start:stop])

    starts = range(0, features.shape[0], _BLOCK_ROWS)
    workers = num_threads or default_num_threads()
    if workers == 1 or len(starts) < 2:
        for start in starts:
            block(start)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(block, starts))
    return out


class NodeClassifier:
    """A trained stack of graph attention layers (GAT, Veličković et al. 2018) with its weights.

    Args:
        config: What the model is.
        tensors: The weights by name, as PyG names those of its ``GAT``: ``convs.0.lin.weight`` [H*C, F],
            ``convs.0.att_src`` and ``convs.0.att_dst`` [1, H, C], ``convs.0.bias``, and so on; float32.

    Raises:
        ArgumentError: A weight is missing or of the wrong shape.

    Example:
        >>> model = load_model("out")  # doctest: +SKIP
        >>> probabilities = model.predict_proba(graph, features)  # doctest: +SKIP
    """

    def __init__(self, config: ModelConfig, tensors: dict[str, Any]) -> None:
        self.config = config
        self.tensors: dict[str, Floats] = {}
        for layer, (columns, heads, channels) in enumerate(config.layer_sizes()):
            last = layer == config.layers - 1
            shapes = {
                "lin.weight": (heads * channels, columns),
                "att_src": (1, heads, channels),
                "att_dst": (1, heads, channels),
                "bias": (channels if last else heads * channels,),
            }
            for name, shape in shapes.items():
                name = f"convs.{layer}.{name}"
                tensor = tensors.get(name)
                if tensor is None or tuple(tensor.shape) != shape:
                    got = "none" if tensor is None else f"shape {list(tensor.shape)}"
                    raise ArgumentError(f"tensors[{name!r}]", f"shape {list(shape)}", got)
                if np.asarray(tensor).dtype.kind not in "biuf":
                    raise ArgumentError(f"tensors[{name!r}]", "real numbers", np.asarray(tensor).dtype)
                with np.errstate(over="ignore"):  # `load_model` refuses what becomes infinite
                    self.tensors[name] = np.ascontiguousarray(tensor, dtype=np.float32)

    def forward(
        self, graph: Graph, features: Any = None, *, num_threads: int = 0, keep: Keep | None = None
    ) -> tuple[Floats, Floats]:
        """Runs all layers over all nodes.

        Args:
            graph: N nodes; a self loop is put at each, in place of those that are there.
            features: float32 [N, F], dense or SciPy sparse; not looked at by a model that reads in-degrees.
            num_threads: 0 is one per core.
            keep: What each layer's projected values, float32 [N, H, C], are attended as: a function that returns them
                or a ``QuantizedTable`` of them, as ``quantization_report`` passes one. None: as they are.

        Returns:
            Logits float32 [N, K], and embeddings: the activations before the last layer, float32 [N, H*C] (with one
            layer: the logits).

        Raises:
            ArgumentError: The features do not fit the model or the graph.
        """
        looped = with_self_loops(graph)
        if self.config.features == "degree":
            features = degree_features(looped.in_degrees - 1, self.config.num_features)
        shape = getattr(features, "shape", None)
        if shape != (graph.num_nodes, self.config.num_features):
            expected = (
                f"a matrix of {counted(graph.num_nodes, 'row')} and {counted(self.config.num_features, 'column')}"
            )
            raise ArgumentError("features", expected, "none" if shape is None else f"shape {list(shape)}")
        features = _checked_csr(features) if hasattr(features, "tocsr") else np.asarray(features, dtype=np.float32)
        x = normalized(features, self.config.normalize)
        return self.forward_normalized(looped, x, num_threads=num_threads, keep=keep)

    def forward_normalized(
        self, looped: Graph, features: Any, *, num_threads: int = 0, keep: Keep | None = None
    ) -> tuple[Floats, Floats]:
        """``forward`` for callers that keep ``with_self_loops(graph)`` and the normalised features."""
        x = features
        embeddings: Floats | None = None
        for layer, (_, heads, channels) in enumerate(self.config.layer_sizes()):
            weight, att_src, att_dst, bias = (
                self.tensors[f"convs.{layer}.{name}"] for name in ("lin.weight", "att_src", "att_dst", "bias")
            )
            values = project(x, weight, num_threads).reshape(-1, heads, channels)
            last = layer == self.config.layers - 1
            out = gat_attention(
                looped,
                values if keep is None else keep(values),
                np.einsum("nhc,hc->nh", values, att_src[0]),
                np.einsum("nhc,hc->nh", values, att_dst[0]),
                bias=None if last else bias.reshape(heads, channels),
                negative_slope=self.config.negative_slope,
                num_threads=num_threads,
            )
            if last:
                x = out.mean(axis=1) + bias
            else:
                x = out.reshape(len(out), -1)
                x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))  # ELU
                embeddings = x
        return x, x if embeddings is None else embeddings

    def predict_proba(self, graph: Graph, features: Any = None, *, num_threads: int = 0) -> Floats:
        """Class probabilities float32 [N, K] of all nodes; arguments as of ``forward``."""
        return softmax(self.forward(graph, features, num_threads=num_threads)[0])

    def embed(self, graph: Graph, features: Any = None, *, num_threads: int = 0) -> Floats:
        """Embeddings of all nodes; arguments and result as of ``forward``."""
        return self.forward(graph, features, num_threads=num_threads)[1]


def softmax(logits: Floats) -> Floats:
    """Rows of logits as probabilities that sum to 1."""
    exponent = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Floats = exponent / exponent.sum(axis=1, keepdims=True)
    return result


def load_model(folder: str | Path) -> NodeClassifier:
    """Loads what ``sage-attention train`` saved. Nothing in the files is executed.

    Args:
        folder: The output folder: ``config.json`` and ``model.safetensors`` are read.

    Raises:
        DataError: A file is missing or damaged, or the two do not fit together.
        MissingDependencyError: The package safetensors is not installed.

    Example:
        >>> load_model("no such folder")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        sage_attention.errors.DataError: no such folder: expected the output folder of a training run, ...
    """
    folder = system_path(folder)
    config_path, model_path = folder / CONFIG_FILE, folder / MODEL_FILE
    for path in (config_path, model_path):
        if not path.is_file():
            raise DataError(folder, "the output folder of a training run", f"no {path.name}")
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise MissingDependencyError("safetensors", "loading a model", "apply") from error
    hint = "train it anew, or copy the folder again"
    try:
        config = ModelConfig.from_json(config_path, config_path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(config_path, "a readable file", error, hint=hint) from error
    try:
        with safe_open(model_path, framework="np") as file:
            twin = (file.metadata() or {}).get(CONFIG_FILE)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - this is no dict
    # TypeError, AttributeError: a type of number NumPy lacks
    except (OSError, SafetensorError, AttributeError, TypeError, ValueError) as error:
        raise DataError(model_path, "a readable model", error, hint=hint) from error
    if twin is not None and ModelConfig.from_json(model_path, twin) != config:
        raise DataError(model_path, f"the model that {CONFIG_FILE} describes", "another one", hint=hint)
    try:
        model = NodeClassifier(config, tensors)
    except ArgumentError as error:
        raise DataError(model_path, f"the weights {CONFIG_FILE} speaks of", error, hint=hint) from error
    for name, tensor in model.tensors.items():
        if not np.isfinite(tensor).all():
            raise DataError(model_path, "finite float32 weights", f"NaN or infinity in {name}", hint=hint)
    return model
