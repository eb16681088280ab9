"""Proves or refutes what is easily wrong in mini-batches: ours, PyTorch Geometric's, anybody's."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
import torch_geometric.loader
from torch_geometric.data import Data, HeteroData

from sage_attention._arrays import integer
from sage_attention.errors import ArgumentError, SageAttentionError

from .audit_checks import CHECKS, Known

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Audit", "AuditError", "Finding", "audit"]


class AuditError(SageAttentionError, ValueError):
    """An audit found mistakes."""


@dataclass(frozen=True)
class Finding:
    """What became of one check.

    Attributes:
        check: Its name.
        verdict: "passed", "failed", "note" (true, and good to know) or "unknown" (there was nothing to check it on).
        message: One line.
    """

    check: str
    verdict: str
    message: str


@dataclass(frozen=True)
class Audit:
    """What was found in some batches.

    Attributes:
        batches: How many were looked at.
        findings: One for each check.
    """

    batches: int
    findings: tuple[Finding, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(finding.verdict != "failed" for finding in self.findings)

    def __getitem__(self, check: str) -> Finding:
        for finding in self.findings:
            if finding.check == check:
                return finding
        raise KeyError(check)

    def raise_if_failed(self) -> None:
        """Does nothing if all is well.

        Raises:
            AuditError: A check failed; the message has them all.
        """
        failed = [f"{finding.check}: {finding.message}" for finding in self.findings if finding.verdict == "failed"]
        if failed:
            raise AuditError("; ".join(failed))

    def __str__(self) -> str:
        marks = {"passed": "✓", "failed": "✗", "note": "·", "unknown": "?"}
        width = max((len(finding.check) for finding in self.findings), default=0)
        lines = [f"{marks[f.verdict]} {f.check:{width}}  {f.message}" for f in self.findings]
        return "\n".join([f"audit of {self.batches} batch{'es' if self.batches != 1 else ''}", *lines])


def audit(
    source: Any,
    data: Any = None,
    *,
    time_attr: str | None = None,
    known_links: Any = None,
    batches: int | None = 10,
) -> Audit:
    """Looks for mistakes in the batches of a loader.

    Checked are: that each edge of a batch is the edge of the data that its id says, with its attributes, and each node
    with its features; that nothing a seed sees is younger than the seed; that no labelled edge is among the
    edges it is to be told from; that no negative edge is an edge. Noted are seeds that come twice in a batch, and how
    many of the edges of the nodes were left out.

    Args:
        source: A loader (also PyTorch Geometric's), a batch, or batches. Of a loader those that come next are looked
            at; they come all the same.
        data: What the batches were made from: Data, HeteroData or (FeatureStore, GraphStore). By default the loader's.
        time_attr: Attribute with the times of nodes or edges. By default the one the loader's sampler goes by.
        known_links: int64 [2, n]: edges that are not in the data, but no negative ones either.
        batches: How many to look at, None for all.

    Returns:
        One finding for each check.

    Raises:
        ArgumentError: An argument is not what is said above.

    Example:
        >>> import torch
        >>> from sage_attention.pyg import NeighborLoader
        >>> graph = Data(torch.eye(4), torch.tensor([[0, 1, 2], [1, 2, 3]]))
        >>> report = audit(NeighborLoader(graph, [2, 2], batch_size=2))
        >>> report.ok, report["edges"].verdict
        (True, 'passed')
    """
    loader = (
        source if isinstance(source, (torch_geometric.loader.NodeLoader, torch_geometric.loader.LinkLoader)) else None
    )
    data = loader.data if loader is not None and data is None else data
    if data is None:
        raise ArgumentError("data", "what the batches were made from", None)
    count = None if batches is None else integer("batches", batches, 1)
    found: dict[str, Counter[str]] = {name: Counter() for name in CHECKS}
    known = Known(data, loader, time_attr, known_links)
    looked_at = 0
    with contextlib.nullcontext(source) if loader is None else _left_alone(loader) as given:
        for batch in itertools.islice(_batches(given), count):
            looked_at += 1
            for name, check in CHECKS.items():
                found[name].update(check.look(batch, known))
    return Audit(looked_at, tuple(Finding(name, *check.judge(found[name])) for name, check in CHECKS.items()))


@contextlib.contextmanager
def _left_alone(loader: Any) -> Iterator[Any]:
    """A loader whose next batches are those of `loader`, which afterwards is where it was, as is what it draws from."""
    generators = [torch.default_generator]
    if isinstance(loader.generator, torch.Generator):
        generators.append(loader.generator)
    states = [generator.get_state() for generator in generators]
    twin = copy.copy(loader)
    twin._iterator = None  # noqa: SLF001 - persistent workers go on with the loader's own epochs
    try:
        yield twin
    finally:
        for generator, state in zip(generators, states):
            generator.set_state(state)


def _batches(source: Any) -> Iterable[Any]:
    if isinstance(source, (Data, HeteroData)):
        return [source]
    try:
        return cast("Iterable[Any]", iter(source))
    except TypeError as error:
        raise ArgumentError("source", "a loader, a batch, or batches", type(source).__name__) from error
