"""What changes between two minor versions of Kubernetes, and which change is the cause of a difference.

The cause is found by trying: the newer version is simulated without one of the changes at a time, and if a pod then
ends as it does in the older version, that change is its cause. Pods influence each other, so a change can be the cause
of what happens to pods that it is not about, and several changes together can have an effect that none has alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kubestow import config
from kubestow.rules.minors import Behaviour
from kubestow_lab.comparison.pod_differences import PodDifference, pod_differences
from kubestow_lab.simulation.outcomes import PodOutcome


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

    def undone(self, gates: config.FeatureGates) -> config.FeatureGates:
        """The gates of the newer version without this change."""
        if self.behaviour is not None:
            return gates.emulating(gates.minor.without(self.behaviour))
        return gates.switched(self.name, on=not gates.enabled(self.name))


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


def _state(on: bool | None) -> str:
    return "no such gate" if on is None else "on" if on else "off"


@dataclass(frozen=True, slots=True)
class Cause:
    """A change and the pods that it alone is the cause of. None stands for several changes together."""

    change: MinorChange | None
    pods: tuple[PodDifference, ...]


def find_causes(
    differences: Sequence[PodDifference],
    changes: Sequence[MinorChange],
    older: Sequence[PodOutcome],
    simulate_without: Callable[[MinorChange], Sequence[PodOutcome]],
) -> list[Cause]:
    """The causes of differences between an older version, with the outcomes ``older``, and a newer one.

    ``simulate_without`` simulates the newer one without a change; it is called for one change after another until every
    pod has a cause. Causes of most pods come first, several changes together last.
    """
    unexplained = {difference.key: difference for difference in differences}
    causes = []
    for change in changes:
        if not unexplained:
            break
        remaining = {one.key for one in pod_differences(older, simulate_without(change), messages=True)}
        explained = [unexplained.pop(key) for key in [*unexplained] if key not in remaining]
        if explained:
            causes.append(Cause(change, tuple(explained)))
    if unexplained:
        causes.append(Cause(None, tuple(unexplained.values())))
    return sorted(causes, key=lambda cause: (cause.change is None, -len(cause.pods)))
