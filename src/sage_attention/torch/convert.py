"""Swaps PyTorch Geometric's attention layers inside a model for this package's, weights and all."""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

import torch

from sage_attention.errors import ArgumentError, MissingDependencyError

from . import nn
from .convert_check import ConversionError, check_conversion

__all__ = ["ConversionError", "ConversionReport", "ConvertedLayer", "convert"]

Model = TypeVar("Model", bound=torch.nn.Module)

_KINDS = ("GATConv", "GATv2Conv", "TransformerConv")
_COMMON = ("in_channels", "out_channels", "heads", "concat", "dropout", "edge_dim", "aggr", "flow")
_GAT = (*_COMMON, "negative_slope", "add_self_loops", "fill_value", "residual")
_OPTIONS = {
    "GATConv": _GAT,
    "GATv2Conv": (*_GAT, "share_weights"),
    "TransformerConv": (*_COMMON, "beta", "root_weight"),
}
# What a subclass may define and still be the same layer. PyG itself writes the last two lines into each.
_HARMLESS = {
    "__init__", "__module__", "__qualname__", "__doc__", "__annotations__", "__firstlineno__",
    "__static_attributes__", "__parameters__", "__annotate_func__", "__annotations_cache__",
    "collect", "edge_collect",
    "_orig_propagate", "_jinja_propagate", "_orig_edge_updater", "_jinja_edge_updater",
}  # fmt: skip
_GENERATED = ("propagate", "edge_updater")
_STEPS = ("forward", "message", "aggregate", "update", "edge_update", "message_and_aggregate", *_GENERATED)
_STEP_HOOKS = ("_propagate_", "_message_", "_aggregate_", "_edge_update_")
# Hooks of torch.nn.Module. The dictionaries themselves are handed over, so that handles still remove hooks.
_MODULE_HOOKS = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_backward_hooks", "_backward_pre_hooks", "_is_full_backward_hook",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip


@dataclass(frozen=True)
class ConvertedLayer:
    """What became of one attention layer.

    Attributes:
        name: Where it is in the model; empty for the model itself.
        kind: Its class.
        converted: Whether it was swapped.
        reason: Why not, or empty.
    """

    name: str
    kind: str
    converted: bool
    reason: str = ""


@dataclass(frozen=True)
class ConversionReport:
    """What became of the attention layers of a model; ``print`` it.

    Attributes:
        layers: All of them, in the order of ``model.named_modules()``; a shared one once.

    Example:
        >>> print(ConversionReport((ConvertedLayer("convs.0", "GATConv", True),)))
        1 of 1 attention layers converted
          convs.0: GATConv, converted
    """

    layers: tuple[ConvertedLayer, ...]

    @property
    def converted(self) -> tuple[ConvertedLayer, ...]:
        """Those that were swapped."""
        return tuple(layer for layer in self.layers if layer.converted)

    @property
    def left(self) -> tuple[ConvertedLayer, ...]:
        """Those that were left as they were."""
        return tuple(layer for layer in self.layers if not layer.converted)

    def __str__(self) -> str:
        lines = [f"{len(self.converted)} of {len(self.layers)} attention layers converted"]
        for layer in self.layers:
            fate = "converted" if layer.converted else f"left: {layer.reason}"
            lines.append(f"  {layer.name or '(the model itself)'}: {layer.kind}, {fate}")
        return "\n".join(lines)


@overload
def convert(model: Model, *, check: bool = True, return_report: Literal[False] = False) -> Model: ...


@overload
def convert(model: Model, *, check: bool = True, return_report: Literal[True]) -> tuple[Model, ConversionReport]: ...


def convert(model: Model, *, check: bool = True, return_report: bool = False) -> Model | tuple[Model, ConversionReport]:
    """Swaps PyG's GATConv, GATv2Conv and TransformerConv in a model, in place, for this package's layers.

    The new layers hold the same ``Parameter`` objects, so optimisers made before keep working, the same
    linear maps, hooks, mode and options, and are found under the same names; a layer shared by several
    parents is swapped once. A subclass that changes how the layer computes, a layer with hooks inside message
    passing, or one with options this package lacks is left alone; a warning says so, or the report. PyG's
    ``to_hetero`` may come before or after; explain with the original.

    Args:
        model: Any module. If it is such a layer itself, use what is returned.
        check: Run each new layer beside the old one on a small random graph first, and compare outputs and
            gradients.
        return_report: Also return what became of each layer, instead of warning.

    Returns:
        The model; with ``return_report`` also the report.

    Raises:
        ConversionError: A new layer does not compute what the old one does. The model is then unchanged.
        MissingDependencyError: PyTorch Geometric is not installed.
        ArgumentError: ``model`` is no module.

    Example:
        >>> from torch_geometric.nn import GAT
        >>> model = convert(GAT(16, 32, num_layers=2, out_channels=4, heads=2))
        >>> type(model.convs[0]).__module__
        'sage_attention.torch.nn.gat'
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError("model", "a torch.nn.Module", type(model).__name__)
    bases = _pyg_classes()
    layers: list[ConvertedLayer] = []
    swaps: dict[torch.nn.Module, torch.nn.Module] = {}
    for name, module in model.named_modules():
        kind = next((kind for kind, base in bases.items() if isinstance(module, base)), None)
        if kind is None:
            continue
        reason = _reason_to_leave(module, kind, bases[kind])
        if not reason:
            try:
                twin = _twin(module, kind)
            except ArgumentError as error:
                reason = str(error)
            else:
                if check:
                    check_conversion(name or kind, module, functools.partial(_twin, kind=kind))
                swaps[module] = twin
        layers.append(ConvertedLayer(name, type(module).__name__, not reason, reason))
    for parent in model.modules():
        for key, child in list(parent._modules.items()):  # noqa: SLF001  # unlike children(), with doubles
            if child in swaps:
                parent.register_module(key, swaps[child])
    report = ConversionReport(tuple(layers))
    converted: Any = swaps.get(model, model)
    if return_report:
        return converted, report
    if report.left or not report.layers:
        what = str(report) if report.layers else f"no {', '.join(_KINDS)} of PyTorch Geometric in the model"
        warnings.warn(f"convert: {what}", stacklevel=2)
    result: Model = converted
    return result


def _pyg_classes() -> dict[str, type]:
    try:
        import torch_geometric.nn as pyg_nn
    except ImportError as error:
        raise MissingDependencyError("torch_geometric", "sage_attention.torch.convert", "pyg") from error
    return {kind: getattr(pyg_nn, kind) for kind in _KINDS}


def _reason_to_leave(layer: Any, kind: str, base: type) -> str:
    """Why a layer cannot be swapped; empty if it can."""
    for cls in type(layer).__mro__[: type(layer).__mro__.index(base)]:
        own = {name for name in vars(cls) if name not in _HARMLESS and not _is_generated(cls, name)}
        if own:
            return f"{cls.__name__} is a {kind} with its own {', '.join(sorted(own))}"
    replaced = [step for step in _STEPS if step in vars(layer)]
    if replaced:
        return f"its {', '.join(replaced)} was replaced"
    hooked = [name for name, hooks in vars(layer).items() if name.startswith(_STEP_HOOKS) and hooks]
    if hooked:
        return "it has hooks inside message passing, which a fused operator cannot call"
    if getattr(layer, "_explain", None):
        return "it is being explained"
    if getattr(layer, "decomposed_layers", 1) != 1:
        return "it is decomposed (decomposed_layers)"
    return ""


def _is_generated(cls: type, name: str) -> bool:
    """Whether PyG wrote this method into a subclass, from its template."""
    module = getattr(vars(cls)[name], "__module__", None) or ""
    return name in _GENERATED and module.startswith(f"{cls.__module__}_{cls.__name__}")


def _twin(layer: Any, kind: str) -> torch.nn.Module:
    """This package's layer with the options, parameters, linear maps, mode and hooks of PyG's."""
    options = {name: getattr(layer, name) for name in _OPTIONS[kind] if hasattr(layer, name)}
    if kind == "TransformerConv":
        options["bias"] = layer.lin_key.bias is not None
    else:
        options["bias"] = layer.bias is not None
    with torch.device("meta"):  # no memory, and no random numbers drawn
        twin: torch.nn.Module = getattr(nn, kind)(**options)
    parameters = {name: value for name, value in layer._parameters.items() if value is not None}  # noqa: SLF001
    children = {name: value for name, value in layer.named_children() if name != "aggr_module"}
    if "lin_r" in layer._modules:  # noqa: SLF001  # named_children() skips it where it is lin_l
        children["lin_r"] = layer.lin_r
    wanted = [name for name, value in twin._parameters.items() if value is not None]  # noqa: SLF001
    wanted_children = [name for name, value in twin._modules.items() if value is not None]  # noqa: SLF001
    if set(wanted) != set(parameters) or set(wanted_children) != set(children) or layer._buffers:  # noqa: SLF001
        raise ArgumentError(
            f"parameters of {kind}",
            ", ".join(wanted + wanted_children),
            ", ".join([*parameters, *children, *layer._buffers]),  # noqa: SLF001
        )
    for name in wanted:
        twin.register_parameter(name, parameters[name])
    for name in wanted_children:
        twin.register_module(name, children[name])
    for name in _MODULE_HOOKS:
        if isinstance(vars(layer).get(name), (OrderedDict, dict, bool)):
            vars(twin)[name] = vars(layer)[name]
    twin.training = layer.training
    return twin
