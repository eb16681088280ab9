"""Layers as PyTorch Geometric's tools look for them: where it is loaded, they are of its class MessagePassing too.

Its `to_hetero` and others treat a module by that class alone. Nothing else of the class is used, and it is never
imported from here: a layer made in a process that has not loaded it is the plain one.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

from sage_attention.errors import SageAttentionError

__all__ = ["known_to_pyg"]


class _Explained:
    """What PyTorch Geometric's explainers set on the layers of a model: a mask on edges, which ours would not heed."""

    @property
    def explain(self) -> bool | None:
        """None: not explained."""
        return None

    @explain.setter
    def explain(self, value: bool | None) -> None:
        if value:
            raise SageAttentionError(
                f"{type(self).__name__} cannot be explained by masks on edges: explain PyTorch Geometric's layer with "
                "the same state_dict, or look at return_attention_weights"
            )


def known_to_pyg(layer_class: type) -> type:
    """The class to make a layer of.

    Args:
        layer_class: One of this package's layers, or a subclass.

    Returns:
        Where PyTorch Geometric is loaded, a subclass that is also its MessagePassing; otherwise the same.

    Example:
        >>> known_to_pyg(int) is int or known_to_pyg(int).__name__ == "int"
        True
    """
    base = getattr(sys.modules.get("torch_geometric.nn.conv.message_passing"), "MessagePassing", None)
    if base is None or issubclass(layer_class, base):
        return layer_class
    return _also(layer_class, base)


@functools.cache  # one class for each, however many layers
def _also(layer_class: type, base: type) -> type:
    names = ("__module__", "__qualname__", "__doc__")
    own: dict[str, Any] = {name: getattr(layer_class, name) for name in names}

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: ARG001, N807
        # As a layer of the plain class: who loads it need not have PyTorch Geometric.
        state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
        return _made_anew, (layer_class,), state

    return type(layer_class.__name__, (_Explained, layer_class, base), {**own, "__reduce_ex__": __reduce_ex__})


def _made_anew(layer_class: Any) -> Any:
    return layer_class.__new__(layer_class)
