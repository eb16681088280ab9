"""Which signatures of which causes a log bears: facts only, no judgement.

Contract: hits come in no order that means anything, each with the line it rests on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .derive import derived_events

if TYPE_CHECKING:
    from .knowledge import Cause, Knowledge, Signature
    from .log import Log

__all__ = ["Event", "Hit", "Observations", "find_events", "find_hits"]

_MOST_PER_SIGNATURE = 50


@dataclass(frozen=True)
class Event:
    """What a line reports, freed from the wording and language of the tool.

    Attributes:
        kind: As in ``events.json``.
        subject: The file, symbol, module, text it is about.
        index: The line.
    """

    kind: str
    subject: str
    index: int


@dataclass(frozen=True)
class Hit:
    """A signature that matched.

    Attributes:
        cause: What it stands for.
        signature: Which of its signatures.
        index: The line that matched.
        subject: What it is about, where the signature says so.
    """

    cause: Cause
    signature: Signature
    index: int
    subject: str


@dataclass
class Observations:
    """What holds for the whole log, looked up when asked for.

    Attributes:
        log: The log.
        knowledge: Where the names are defined.
    """

    log: Log
    knowledge: Knowledge
    _known: dict[str, bool] = field(default_factory=dict)

    def holds(self, name: str) -> bool:
        """Whether an observation holds.

        Args:
            name: As in ``observations.json``.
        """
        if name not in self._known:
            self._known[name] = self.log.first(self.knowledge.observations[name]) is not None
        return self._known[name]


def find_events(log: Log, knowledge: Knowledge) -> list[Event]:
    """What the lines report, at most one event of each kind per line.

    Args:
        log: The log.
        knowledge: The patterns.
    """
    seen: dict[tuple[str, int], Event] = {}
    for kind, pattern in knowledge.events:
        for place in log.places(pattern):
            groups = place.match.groupdict()
            subject = next((text for name, text in groups.items() if name.startswith("subject") and text), "")
            seen.setdefault((kind, place.index), Event(kind, subject.strip(" '"), place.index))
    return [*seen.values(), *(Event(*one) for one in derived_events(log))]


def find_hits(log: Log, knowledge: Knowledge) -> list[Hit]:
    """All signatures that match.

    Args:
        log: The log.
        knowledge: The causes.
    """
    observations = Observations(log, knowledge)
    by_kind: dict[str, list[Event]] = {}
    for event in find_events(log, knowledge):
        by_kind.setdefault(event.kind, []).append(event)
    hits = []
    for cause in knowledge.causes.values():
        for signature in cause.signatures:
            for index, subject in _where(signature, log, by_kind):
                if signature.near is not None and not log.near(signature.near, index, signature.within):
                    continue
                if not all(observations.holds(name) for name in signature.context):
                    break
                if any(observations.holds(name) for name in signature.unless):
                    break
                hits.append(Hit(cause, signature, index, subject))
    return hits


def _where(signature: Signature, log: Log, by_kind: dict[str, list[Event]]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    if signature.event:
        for event in by_kind.get(signature.event, ()):
            match = signature.pattern.search(event.subject)
            if match is not None:
                found.append((event.index, match.groupdict().get("subject") or event.subject))
    else:
        for place in log.places(signature.pattern):
            found.append((place.index, place.match.groupdict().get("subject") or ""))
            if len(found) >= _MOST_PER_SIGNATURE:
                break
    return found[:_MOST_PER_SIGNATURE]
