"""What changes between two minor versions of Kubernetes, and which change is the cause of a difference.

The cause is found by trying: the newer version is simulated without one of the changes at a time, and if a pod then
ends as it does in the older version, that change is its cause. For the other pods it is simulated without several, down
to those that are needed together. Pods influence each other, so a change can be the cause of what happens to pods that
it is not about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kubestow import config
from kubestow.rules.minors import Behaviour
from kubestow_lab.comparison.pod_differences import PodDifference, PodKey, pod_differences
from kubestow_lab.simulation.outcomes import PodOutcome

#: Each search for changes that are needed together takes about twenty simulations.
_MOST_SEARCHES = 10


@dataclass(frozen=True, slots=True)
class MinorChange:
    """A rule, or the default of a feature gate, that is not the same in two minor versions.

    ``name`` is that of the behaviour or of the gate, ``subject`` the plugin or part of the scheduler that it is about,
    ``before`` and ``after`` say what holds in the older and in the newer version.
    """

    name: str
    subject: str
    before: str
    after: str
    behaviour: Behaviour | None = None


def minor_changes(older: config.FeatureGates, newer: config.FeatureGates) -> list[MinorChange]:
    """All changes between two minor versions: first the behaviours, in the order of their table, then the gates."""
    behaviours = [
        MinorChange(one.name, one.value.subject, one.value.before, one.value.rule, one)
        for one in Behaviour
        if newer.minor.has(one) and not older.minor.has(one)
    ]
    before = dict(older)
    gates = [
        MinorChange(name, "feature gate", _state(before.get(name)), _state(on))
        for name, on in sorted(newer)
        if on != before.get(name, False)
    ]
    return behaviours + gates


def undone(changes: Iterable[MinorChange], gates: config.FeatureGates) -> config.FeatureGates:
    """The gates of the newer version without these changes."""
    minor, switched = gates.minor, []
    for change in changes:
        if change.behaviour is None:
            switched.append(change.name)
        else:
            minor = minor.without(change.behaviour)
    without = gates.emulating(minor)
    for name in switched:
        without = without.switched(name, on=not gates.enabled(name))
    return without


def _state(on: bool | None) -> str:
    return "no such gate" if on is None else "on" if on else "off"


@dataclass(frozen=True, slots=True)
class Cause:
    """Changes that are needed together, often one, and the pods that they are the cause of; none if none was found."""

    changes: tuple[MinorChange, ...]
    pods: tuple[PodDifference, ...]


#: The outcomes in the newer version without some changes; None if it cannot run without them.
SimulateWithout = Callable[[Sequence[MinorChange]], Sequence[PodOutcome] | None]


def find_causes(
    differences: Sequence[PodDifference],
    changes: Sequence[MinorChange],
    older: Sequence[PodOutcome],
    simulate_without: SimulateWithout,
) -> list[Cause]:
    """The causes of differences between an older version, with the outcomes ``older``, and a newer one.

    Changes are tried one after another until every pod has a cause, then together for at most ten of the other pods.
    Causes of most pods come first, pods without a cause last.
    """
    unexplained = {difference.key: difference for difference in differences}
    causes = []

    def restored(without: Sequence[MinorChange]) -> set[PodKey]:
        """The pods without a cause so far that end as in the older version without these changes."""
        outcomes = simulate_without(without)
        if outcomes is None:
            return set()
        return unexplained.keys() - {one.key for one in pod_differences(older, outcomes, messages=True)}

    def explain(needed: Sequence[MinorChange], pods: set[PodKey]) -> None:
        explained = tuple(unexplained.pop(key) for key in [*unexplained] if key in pods)
        causes.append(Cause(tuple(needed), explained))

    for change in changes:
        if not unexplained:
            break
        if pods := restored([change]):
            explain([change], pods)
    restorable = restored(changes) if unexplained else set()
    for _ in range(_MOST_SEARCHES):
        pod = next((key for key in unexplained if key in restorable), None)
        if pod is None:
            break
        needed = _needed_together(pod, changes, restored)
        explain(needed, restored(needed))
    if unexplained:
        causes.append(Cause((), tuple(unexplained.values())))
    return sorted(causes, key=lambda cause: (not cause.changes, -len(cause.pods)))


def _needed_together(
    pod: PodKey, changes: Sequence[MinorChange], restored: Callable[[Sequence[MinorChange]], set[PodKey]]
) -> Sequence[MinorChange]:
    """The changes without which a pod is restored, less those that are not needed for it: halves, then quarters, ..."""
    needed, size = list(changes), len(changes) // 2
    while size:
        start = 0
        while start < len(needed):
            fewer = needed[:start] + needed[start + size :]
            if pod in restored(fewer):
                needed = fewer
            else:
                start += size
        size //= 2
    return needed
