"""Applies a saved model to a graph: what ``sage-attention predict`` and ``embed`` run. Torch is not needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sage_attention._paths import check_name, system_path
from sage_attention.errors import DataError, counted
from sage_attention.inference import load_model
from sage_attention.recipes import output
from sage_attention.recipes.dataset import load_dataset
from sage_attention.recipes.features import read_features
from sage_attention.recipes.predictions import write_predictions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sage_attention.graph import Graph
    from sage_attention.inference import NodeClassifier
    from sage_attention.recipes.node_dataset import NodeDataset

__all__ = ["embed", "output_file", "predict"]


def _load(
    folder: str, edges: str, features: str | None, undirected: bool | None, encoding: str | None
) -> tuple[NodeClassifier, NodeDataset, Graph]:
    from sage_attention.graph import Graph

    model = load_model(folder)
    config = model.config
    table = None
    if config.features == "degree" and features is not None:
        raise DataError(features, "no --features, as the model was trained without", "a file", hint="leave it out")
    if config.features == "given":
        if features is None:
            raise DataError(None, "--features, as the model was trained with them", "none")
        width = config.num_features if Path(features).suffix.lower() == ".json" else None
        table = read_features(features, num_features=width, encoding=encoding)
        if table.values.shape[1] != config.num_features:
            raise DataError(
                features,
                f"{counted(config.num_features, 'feature')}, as the model was trained with",
                table.values.shape[1],
            )
    both_ways = config.undirected if undirected is None else undirected
    data = load_dataset(edges, table, undirected=both_ways, encoding=encoding)
    kept = data.edge_index[0] != data.edge_index[1]
    return model, data, Graph.from_edge_index(data.edge_index[:, kept], data.num_nodes)


_SEPARATORS = tuple(sep for sep in (os.sep, os.altsep) if sep)
_KINDS = {".csv", ".tsv", ".txt", ".json", ".npz", ".npy", ".parquet"}


def output_file(out: str, suffixes: tuple[str, ...], inputs: tuple[str | None, ...]) -> Path:
    """Makes sure, before the work is done, that a file can be written there.

    It must not be named as what it is not, and be none of those that are read.
    """
    check_name(out)
    path = Path(out)
    if path.suffix.lower() in _KINDS.difference(suffixes):
        raise DataError(out, f"a file name that ends in {' or '.join(suffixes)}, which is what is written", path.suffix)
    if out.endswith(_SEPARATORS) or not path.name or path.is_dir():
        raise DataError(out, "a file to write", "a folder", hint="name a file in it")
    path = system_path(output.prepare_output_folder(path.parent) / path.name)
    for given in inputs:
        if given is not None and _is_same_file(path, given):
            raise DataError(out, "another file than those that are read", given, hint="choose another name")
    return path


def _is_same_file(path: Path, other: str) -> bool:
    """Whether both names, which may differ in case on Windows, lead to one file that exists."""
    try:
        return path.samefile(system_path(other))
    except (OSError, ValueError):  # what is not there is complained of when it is read
        return False


def _check_finite(results: NDArray[np.float32], data: NodeDataset, features: str | None) -> None:
    """Refuses results that left the range of float32 on the way."""
    wrong = ~np.isfinite(results).all(axis=1)
    if wrong.any():
        node = data.node_ids[int(np.argmax(wrong))]
        more = int(wrong.sum()) - 1
        got = f"NaN or infinity for node {node}" + (f" and {counted(more, 'other')}" if more else "")
        raise DataError(features, "finite results", got, hint="are these features scaled as in training?")


def predict(
    folder: str,
    edges: str,
    features: str | None,
    out: str,
    *,
    undirected: bool | None = None,
    num_threads: int = 0,
    encoding: str | None = None,
) -> int:
    """Writes class and probability of every node, as Parquet or CSV.

    Args:
        folder: The output folder of a training run.
        edges: A file of edges.
        features: A file of features, None for a model that was trained without.
        out: The file to write: CSV if it ends in ``.csv``, else Parquet.
        undirected: Take edges in both directions; None as in training.
        num_threads: 0 is one per core.
        encoding: Of text files without a byte order mark; None for UTF-8.

    Returns:
        Number of nodes.

    Raises:
        DataError: A file is wrong or does not fit the model, or `out` is named as another kind of file or is one of
            those that are read.
        SageAttentionError: `out` cannot be written.
    """
    path = output_file(out, (".parquet", ".csv"), (edges, features))
    model, data, graph = _load(folder, edges, features, undirected, encoding)
    with np.errstate(all="ignore"):
        probabilities = model.predict_proba(graph, data.features, num_threads=num_threads)
    _check_finite(probabilities, data, features)
    write_predictions(path, data.node_ids, model.config.class_names, probabilities)
    return data.num_nodes


def embed(
    folder: str,
    edges: str,
    features: str | None,
    out: str,
    *,
    undirected: bool | None = None,
    num_threads: int = 0,
    encoding: str | None = None,
) -> int:
    """Writes the embeddings of all nodes, float32 [N, H*C], in the order of sorted node ids.

    Arguments, result and errors are those of ``predict``; `out` is an NPY file, and the ids of its rows are written
    beside it as ``<name>.ids.npy``.
    """
    path = output_file(out, (".npy",), (edges, features))
    model, data, graph = _load(folder, edges, features, undirected, encoding)
    with np.errstate(all="ignore"):
        embeddings = model.embed(graph, data.features, num_threads=num_threads)
    _check_finite(embeddings, data, features)
    with output.all_or_nothing(path.parent, mark=path.name) as beside:
        output.write_npy(beside / f"{path.stem}.ids.npy", data.node_ids)
        output.write_npy(beside / path.name, embeddings)
    return data.num_nodes
