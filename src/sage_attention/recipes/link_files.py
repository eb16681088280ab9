"""A recommender's folder: ``config.json`` and ``model.safetensors``, with weights, ids, pairs and ties. No pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention._paths import system_path
from sage_attention.errors import ArgumentError, DataError, MissingDependencyError
from sage_attention.inference import CONFIG_FILE, MODEL_FILE
from sage_attention.recipes import output
from sage_attention.recipes.link_dataset import LinkDataset
from sage_attention.recipes.link_model import LinkConfig, LinkModel

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sage_attention.recipes.tables import PathLike

__all__ = ["Recommender", "load_recommender", "save_recommender"]

_MOST_LAYERS = 1000
_HINT = "train it anew, or copy the folder again"


@dataclass(frozen=True)
class Recommender:
    """A model with what it was trained on.

    Attributes:
        model: The model.
        data: Users, items, pairs and ties.
    """

    model: LinkModel
    data: LinkDataset


def _id_arrays(name: str, ids: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Ids as arrays of numbers: integers as they are; texts as UTF-8, one after the other, and where each ends."""
    if ids.dtype.kind == "i":
        return {f"{name}.integers": ids}
    words = [str(word).encode() for word in ids.tolist()]
    ends = np.cumsum([len(word) for word in words], dtype=np.int64)
    return {f"{name}.text": np.frombuffer(b"".join(words), np.uint8), f"{name}.ends": ends}


def _ids(name: str, arrays: dict[str, NDArray[Any]]) -> NDArray[Any]:
    if f"{name}.integers" in arrays:
        return np.asarray(arrays.pop(f"{name}.integers"), np.int64)
    body, ends = arrays.pop(f"{name}.text").tobytes(), arrays.pop(f"{name}.ends")
    starts = np.concatenate([[0], ends[:-1]])
    if len(ends) and ends[-1] != len(body):
        raise ValueError(f"{name} is cut short")
    return np.array([body[start:end].decode() for start, end in zip(starts.tolist(), ends.tolist())], dtype="U")


def save_recommender(folder: Path, model: LinkModel, data: LinkDataset) -> None:
    """Writes a model and what it was trained on.

    Args:
        folder: Which exists.
        model: The model.
        data: Its data set.

    Raises:
        SageAttentionError: A file cannot be written.
    """
    arrays: dict[str, NDArray[Any]] = {f"model.{name}": tensor for name, tensor in model.tensors.items()}
    arrays.update(_id_arrays("user_ids", data.user_ids))
    arrays.update(_id_arrays("item_ids", data.item_ids))
    arrays.update(users=data.users, items=data.items, part=data.part, social=data.social)
    if data.weights is not None:
        arrays["weights"] = data.weights
    about = model.config.to_json()
    output.write_json(folder / CONFIG_FILE, about)
    output.write_safetensors(folder / MODEL_FILE, arrays, {CONFIG_FILE: json.dumps(about)})


def _config(path: Path, text: str) -> LinkConfig:
    try:
        value = json.loads(text)
        if value.get("model") != "link":
            hint = "sage-attention recommend takes what train --task link wrote"
            raise DataError(path, 'a recommender ("model": "link")', repr(value.get("model")), hint=hint)
        if value["format"] != 1:
            raise DataError(path, "format 1", value["format"], hint="it is from another version")
        config = LinkConfig(**{field.name: value[field.name] for field in fields(LinkConfig)})
        sizes = [config.num_users, config.num_items, config.channels, config.heads, config.layers]
        if any(type(size) is not int or size < 1 for size in sizes) or config.layers > _MOST_LAYERS:
            raise ValueError(f"sizes are {sizes}")
        if config.similarity not in ("cosine", "dot"):
            raise ValueError(f"similarity is {config.similarity!r}")
    except (AttributeError, ValueError, TypeError, KeyError, RecursionError, ZeroDivisionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(path, "the config.json of a recommender", f"{type(error).__name__}: {error}") from error
    return config


def load_recommender(folder: PathLike) -> Recommender:
    """Loads what ``sage-attention train --task link`` saved. Nothing in the files is executed.

    Args:
        folder: The output folder: ``config.json`` and ``model.safetensors`` are read.

    Raises:
        DataError: A file is missing or damaged, or the two do not fit together.
        MissingDependencyError: The package safetensors is not installed.

    Example:
        >>> load_recommender("no such folder")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        sage_attention.errors.DataError: no such folder: expected the output folder of a training run, ...
    """
    home = system_path(folder)
    config_path, model_path = home / CONFIG_FILE, home / MODEL_FILE
    for path in (config_path, model_path):
        if not path.is_file():
            raise DataError(home, "the output folder of a training run", f"no {path.name}")
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise MissingDependencyError("safetensors", "loading a model", "apply") from error
    try:
        config = _config(config_path, config_path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(config_path, "a readable file", error, hint=_HINT) from error
    try:
        with safe_open(model_path, framework="np") as file:
            twin = (file.metadata() or {}).get(CONFIG_FILE)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - this is no dict
        if twin is None or _config(model_path, twin) != config:
            raise DataError(model_path, f"the model that {CONFIG_FILE} describes", "another one", hint=_HINT)
        prefix = "model."
        tensors = {name[len(prefix) :]: arrays.pop(name) for name in list(arrays) if name.startswith(prefix)}
        model = LinkModel(config, tensors)
        data = _data(arrays, config)
    # AttributeError, TypeError: a type of number NumPy lacks
    except (OSError, SafetensorError, ArgumentError, AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(model_path, "a whole recommender", f"{type(error).__name__}: {error}", hint=_HINT) from error
    return Recommender(model, data)


def _data(arrays: dict[str, NDArray[Any]], config: LinkConfig) -> LinkDataset:
    """The data set in the arrays, checked: whatever they hold, no index leads outside."""
    user_ids, item_ids = _ids("user_ids", arrays), _ids("item_ids", arrays)
    data = LinkDataset(
        user_ids, item_ids, arrays["users"], arrays["items"], arrays["part"], arrays.get("weights"), arrays["social"]
    )
    size = data.users.shape
    if (len(user_ids), len(item_ids)) != (config.num_users, config.num_items):
        raise ValueError("it has another number of ids than the model of users and items")
    if len(size) != 1 or data.items.shape != size or data.part.shape != size or data.social.shape[:1] != (2,):
        raise ValueError("its pairs are of odd shapes")
    for name, array, limit in (
        ("users", data.users, config.num_users),
        ("items", data.items, config.num_items),
        ("social", data.social, config.num_users),
        ("part", data.part, 3),
    ):
        if array.dtype != (np.int8 if name == "part" else np.int64):
            raise ValueError(f"{name} are of type {array.dtype}")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < limit:
            raise ValueError(f"{name} are not all from 0 to {limit - 1}")
    weights = data.weights
    if weights is not None and (weights.shape != size or weights.dtype != np.float32 or not (weights > 0).all()):
        raise ValueError("its weights are not one number over 0 for each pair")
    return data
