"""The pods that two simulations treat differently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kubestow_lab.simulation.outcomes import OutcomeState, PodOutcome

PodKey = tuple[str, int]
"""namespace/name of a pod, and its number among those of the same name."""


class PodChange(StrEnum):
    """What the candidate changes for a pod."""

    #: Pending in the candidate, placed in the baseline.
    LOST = "lost"
    #: Placed in the candidate, pending in the baseline.
    WON = "won"
    #: Preempted in the candidate only.
    PREEMPTED = "preempted"
    #: Preempted in the baseline only.
    SPARED = "spared"
    #: On another node.
    MOVED = "moved"
    #: Pending in both, with another message.
    REWORDED = "reworded"
    #: Only the candidate has it: a replacement of a preempted pod.
    ADDED = "added"
    #: Only the baseline has it: a replacement of a preempted pod.
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PodDifference:
    """A pod and its outcomes; None where a simulation has no such pod, or left it on the node that it had before."""

    key: PodKey
    change: PodChange
    baseline: PodOutcome | None
    candidate: PodOutcome | None

    @property
    def outcome(self) -> PodOutcome:
        """The outcome in the candidate, or else in the baseline."""
        found = self.candidate or self.baseline
        assert found is not None
        return found

    @property
    def reason(self) -> str:
        """Why the pod is pending where it is, empty if it is pending in neither."""
        for outcome in (self.candidate, self.baseline):
            if outcome is not None and outcome.state is OutcomeState.PENDING:
                return outcome.message
        return ""


@dataclass(frozen=True, slots=True)
class DifferenceGroup:
    """The pods of one owner (kind/name, empty for none) with the same change and reason, as namespace/name."""

    change: PodChange
    namespace: str
    owner: str
    reason: str
    pods: tuple[str, ...]


def pod_differences(
    baseline: Iterable[PodOutcome], candidate: Iterable[PodOutcome], *, messages: bool = False
) -> tuple[PodDifference, ...]:
    """The pods that differ, in the order of the baseline, then those that only the candidate has.

    With ``messages``, pods that are pending in both differ if their messages do.

    Pods are the same if they have the same namespace and name. Of several pods with one name, such as a pod of a
    StatefulSet and its replacement, the first is compared with the first, and so on.
    """
    before, after = dict(_keyed(baseline)), dict(_keyed(candidate))
    differences = []
    for key in {**before, **after}:
        one, other = before.get(key), after.get(key)
        change = _change(one, other)
        if change is PodChange.REWORDED and not messages:
            continue
        if change is not None:
            differences.append(PodDifference(key, change, one, other))
    return tuple(differences)


def difference_groups(differences: Iterable[PodDifference]) -> list[DifferenceGroup]:
    """The differences by change, owner and reason, in the order of :class:`PodChange`, largest group first."""
    groups: dict[tuple[PodChange, str, str, str], list[str]] = {}
    for difference in differences:
        outcome = difference.outcome
        key = (difference.change, outcome.namespace, outcome.owner, difference.reason)
        groups.setdefault(key, []).append(outcome.key)
    order = list(PodChange)
    found = [DifferenceGroup(*key, tuple(pods)) for key, pods in groups.items()]
    return sorted(found, key=lambda g: (order.index(g.change), -len(g.pods), g.namespace, g.owner, g.reason))


def _keyed(outcomes: Iterable[PodOutcome]) -> Iterator[tuple[PodKey, PodOutcome]]:
    """The outcomes by namespace/name, and a number among those of the same name."""
    seen: dict[str, int] = {}
    for outcome in outcomes:
        number = seen.get(outcome.key, 0)
        seen[outcome.key] = number + 1
        yield (outcome.key, number), outcome


def _change(baseline: PodOutcome | None, candidate: PodOutcome | None) -> PodChange | None:
    states = [None if outcome is None else outcome.state for outcome in (baseline, candidate)]
    if baseline is not None and candidate is not None and states[0] is states[1] is OutcomeState.PENDING:
        return PodChange.REWORDED if baseline.message != candidate.message else None
    if states[1] is OutcomeState.PREEMPTED and states[0] is not OutcomeState.PREEMPTED:
        return PodChange.PREEMPTED
    if states[0] is OutcomeState.PREEMPTED and states[1] is not OutcomeState.PREEMPTED:
        return PodChange.SPARED
    if baseline is None:
        return PodChange.ADDED
    if candidate is None:
        return PodChange.MISSING
    if states[1] is OutcomeState.PENDING:
        return PodChange.LOST
    if states[0] is OutcomeState.PENDING:
        return PodChange.WON
    return PodChange.MOVED if baseline.node != candidate.node else None
