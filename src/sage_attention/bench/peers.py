"""PyTorch Geometric beside ours, from the same projected values: eager and, when asked for, under torch.compile.

Torch is loaded when a function here is called. Edges are grouped and given in the order of their targets, which suits
both sides.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sage_attention.errors import SageAttentionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sage_attention.bench.problem import Scored

__all__ = ["COMPILED", "EAGER", "OURS", "PASSES", "Contenders", "failure", "missing", "unusable", "why_not"]

PASSES = ("forward", "training")
OURS, EAGER, COMPILED = "ours", "PyG eager", "PyG compiled"
OUTPUT_TOLERANCE = 1e-4  # of the largest value
GRADIENT_TOLERANCE = 1e-3  # sums over all nodes, in other orders

# Arrays of edges x heads x channels alive at once at the worst, for judging what will fit.
_ARRAYS = {EAGER: {"gat": 2.0, "gatv2": 4.0, "dot": 3.0}, COMPILED: {"gat": 1.3, "gatv2": 2.5, "dot": 2.5}}

_ID_BYTES = 40  # of an edge, while its ids are brought into the order that each side takes


def missing() -> str:
    """Why PyTorch Geometric cannot be measured, or nothing; nothing is loaded."""
    for name, extra in (("torch", "train"), ("torch_geometric", "pyg")):
        try:
            found = importlib.util.find_spec(name)
        except ValueError:  # a module that was put into sys.modules by hand
            found = None
        if found is None:
            return f'{name} is not installed; pip install "sage-graph-attention[{extra}]"'
    return ""


def unusable() -> str:
    """Why PyTorch Geometric, which is there, cannot be used, or nothing; loads it."""
    try:
        import sage_attention.bench.contenders  # noqa: F401
    except Exception as error:  # noqa: BLE001 - libraries of another version, in many ways
        return failure(error)
    return ""


def failure(error: Exception) -> str:
    r"""An error of a peer, in one line.

    Example:
        >>> failure(RuntimeError("no compiler\nand more"))
        'it fails here: RuntimeError: no compiler'
    """
    lines = str(error).strip().splitlines() or ["?"]
    return f"it fails here: {type(error).__name__}: {lines[0][:200]}"


def why_not(name: str, score: str, num_edges: int, row_bytes: int, table_bytes: int, free: int | None) -> str:
    """Why a contender is left out for want of memory, or nothing.

    Args:
        name: Of the contender.
        score: Kind of attention.
        num_edges: E.
        row_bytes: Of heads x channels.
        table_bytes: Of nodes x heads x channels.
        free: Bytes that are free, None if nobody knows.

    Example:
        >>> why_not("PyG eager", "gat", 10**9, 512, 2**20, 2**33)
        'needs about 991 GiB, 8 are free'
    """
    needed = num_edges * (_ARRAYS.get(name, {}).get(score, 0.0) * row_bytes + _ID_BYTES) + table_bytes * 4
    if free is None or needed * 1.15 < free:
        return ""
    return f"needs about {needed / 2**30:.0f} GiB, {free / 2**30:.0f} are free"


@dataclass
class Contenders:
    """Ours and PyTorch Geometric's on the same arrays.

    Attributes:
        score: Kind of attention.
        training: Whether a step is forward, sum and backward, or forward without gradients.
        steps: name -> a step that gives the output.
        compile_seconds: Of the first call of what compiles.
        dropped: name -> why it is not there.
    """

    score: str
    training: bool
    steps: dict[str, Callable[[], Any]] = field(default_factory=dict)
    compile_seconds: dict[str, float] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    _leaves: dict[str, dict[str, Any]] = field(default_factory=dict)

    @staticmethod
    def make(scored: Scored, names: list[str], threads: int, *, training: bool) -> Contenders:
        """Sets them up, and torch's number of threads.

        Args:
            scored: Arrays, shared by all of them.
            names: Of contenders; "ours" is always among them.
            threads: Of torch and so of our operators.
            training: See the class.
        """
        import torch

        from sage_attention.bench.contenders import OursAttention, PygAttention, compiled, pair, train_step
        from sage_attention.torch import csc

        torch.set_num_threads(threads)
        torch.compiler.reset()
        inputs, size = scored.inputs, scored.problem.graph.num_nodes
        theirs, mine = pair(scored.score, 1, scored.problem.channels, scored.problem.heads)
        if scored.score == "gatv2":
            with torch.no_grad():
                for layer in (theirs, mine):
                    layer.att.copy_(torch.from_numpy(np.asarray(inputs.attention)[None]))
        ends = _edge_index(scored)
        made = Contenders(scored.score, training)
        for name in names:
            module: Any = OursAttention(scored.score, mine) if name == OURS else PygAttention(scored.score, theirs)
            edges: Any = csc(ends, size, size, by_source=training) if name == OURS else ends
            if name == COMPILED:
                module = compiled(module)
            tensors = [torch.from_numpy(array).requires_grad_() for array in _arrays(scored)]
            leaves = {f"input {number}": tensor for number, tensor in enumerate(tensors)}
            if scored.score == "gatv2":
                leaves["att"] = next(p for key, p in module.named_parameters() if key.endswith("att"))

            def call(module: Any = module, edges: Any = edges, tensors: Any = tensors) -> Any:
                return module(edges, *tensors)

            made.steps[name] = train_step(call, list(leaves.values())) if training else _without_gradients(call)
            made._leaves[name] = leaves
        return made

    def check(self) -> float:
        """Runs each once, which compiles, and compares results with ours.

        Returns:
            Seconds that a round will take, roughly; without compiling.

        Raises:
            SageAttentionError: Results differ.
        """
        wanted: Any = None
        gradients: dict[str, Any] = {}
        total = 0.0
        for name in list(self.steps):
            start = time.perf_counter()
            try:
                out = self.steps[name]().detach()
            except Exception as error:
                if name == OURS:
                    raise
                self.steps.pop(name)  # too little memory, no compiler, another version: in many ways
                self.dropped[name] = failure(error)
                continue
            seconds = time.perf_counter() - start
            if name == COMPILED:
                self.compile_seconds[name] = seconds
            else:
                total += seconds
            got = {key: leaf.grad for key, leaf in self._leaves[name].items() if leaf.grad is not None}
            if wanted is None:
                wanted, gradients = out, got
                continue
            self._compare(name, "outputs", out.reshape(wanted.shape), wanted, OUTPUT_TOLERANCE)
            floor = max((float(gradient.abs().max()) for gradient in gradients.values()), default=0.0) * 1e-3
            for key, gradient in gradients.items():
                self._compare(name, f"gradients of {key}", got[key], gradient, GRADIENT_TOLERANCE, floor)
        return total

    def _compare(self, name: str, what: str, got: Any, wanted: Any, tolerance: float, floor: float = 0.0) -> None:
        scale = max(float(wanted.detach().abs().max()), floor, 1e-30)
        error = float((got.detach() - wanted.detach()).abs().max()) / scale
        if not error <= tolerance:
            raise SageAttentionError(
                f"bench: {self.score}: {what}: expected {name} and ours to agree within {tolerance:g} of the largest, "
                f"got a difference of {error:.1e}; nothing is timed that is wrong: please report it"
            )


def _without_gradients(run: Callable[[], Any]) -> Callable[[], Any]:
    def step() -> Any:
        import torch

        with torch.no_grad():
            return run()

    return step


def _arrays(scored: Scored) -> list[Any]:
    """What both sides start from, in the order of `contenders.projected`."""
    inputs = scored.inputs
    if scored.score == "gat":
        return [inputs.values, inputs.source_logits, inputs.target_logits]
    if scored.score == "gatv2":
        return [inputs.values, inputs.queries]
    return [inputs.queries, inputs.keys, inputs.values]


def _edge_index(scored: Scored) -> Any:
    """int64 [2, E], by target."""
    import torch

    graph = scored.problem.graph
    targets = np.repeat(np.arange(graph.num_targets, dtype=np.int64), np.diff(graph.indptr))
    return torch.from_numpy(np.stack([graph.indices.astype(np.int64), targets]))
