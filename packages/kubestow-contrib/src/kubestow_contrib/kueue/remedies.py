"""What would make a waiting Workload be admitted now: fewer pods, another flavor, another topology level.

Each change is tried: the queues are settled with the changed Workload, which has to be admitted while all others keep
their quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from kubestow.api.core import Taint, Toleration
from kubestow.engine.job_forecasts import Remedy
from kubestow.reports.model import counted
from kubestow.rules.matching import tolerates
from kubestow_contrib.kueue.explanation import Trial
from kubestow_contrib.kueue.objects import PodSet, ResourceFlavor, TopologyRequest, Workload
from kubestow_contrib.kueue.workload_info import WorkloadInfo

_HOSTNAME = "kubernetes.io/hostname"


def remedies_of(trial: Trial) -> Iterator[Remedy]:
    """The changes of the Workload alone with which it is admitted now."""
    search = _Changes(trial, trial.info.workload)
    for found in (search.fewer_pods(), *search.other_flavors(), search.other_level(), search.other_slice_level()):
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class _Changes:
    trial: Trial
    workload: Workload

    def _with(self, pod_sets: Sequence[PodSet]) -> Workload:
        spec = msgspec.structs.replace(self.workload.spec, pod_sets=list(pod_sets))
        return msgspec.structs.replace(self.workload, spec=spec)

    def _tried(self, pod_sets: Sequence[PodSet], change: str) -> Remedy | None:
        info = self.trial.admitted_as(self._with(pod_sets))
        if info is None:
            return None
        flavors = {flavor for one in info.pod_sets for flavor in one.flavors.values()}
        return Remedy(change, _nodes_of(info), tuple(sorted(flavors)))

    # -- fewer pods ----------------------------------------------------------------------------------------------------

    def fewer_pods(self) -> Remedy | None:
        """The most pods of its largest pod set with which it is admitted, in whole slices."""
        pod_sets = self.workload.spec.pod_sets
        largest = max(range(len(pod_sets)), key=lambda index: pod_sets[index].count, default=None)
        if largest is None:
            return None
        asked = pod_sets[largest]
        slices = asked.topology_request.slice_constraints if asked.topology_request is not None else ()
        size = max((each.size for each in slices), default=1) or 1

        def fewer(number: int) -> Remedy | None:
            changed = list(pod_sets)
            changed[largest] = msgspec.structs.replace(asked, count=number * size, min_count=None)
            of = "" if len(pod_sets) == 1 else f" of pod set {asked.name}"
            return self._tried(changed, f"{counted(number * size, 'pod')} instead of {asked.count:,}{of}")

        low, high, found = 0, -(-asked.count // size), None
        while high - low > 1:  # it is admitted with low, not with high
            middle = (low + high) // 2
            tried = fewer(middle)
            low, high, found = (low, middle, found) if tried is None else (middle, high, tried)
        return found

    # -- another flavor ------------------------------------------------------------------------------------------------

    def other_flavors(self) -> Iterator[Remedy | None]:
        """Each flavor of the ClusterQueue that the pods exclude now, by what they select or do not tolerate."""
        flavors = [
            self.trial.admission.state.flavors[quota.name]
            for group in self.trial.queue.groups
            for quota in group.flavors
            if quota.name in self.trial.admission.state.flavors
        ]
        keys = {key for flavor in flavors for key in flavor.spec.node_labels}
        for flavor in flavors:
            changed = [_selecting(pod_set, flavor, keys) for pod_set in self.workload.spec.pod_sets]
            if changed != self.workload.spec.pod_sets:
                yield self._tried(changed, f"pods for flavor {flavor.metadata.name}")

    # -- another level of the topology ---------------------------------------------------------------------------------

    def other_level(self) -> Remedy | None:
        """The nearest level above the required one, or else the same level preferred instead of required."""
        asked = next((request.required for request in self._requests() if request.required is not None), None)
        if asked is None:
            return None
        choices: list[tuple[str, str | None, str | None]] = [
            (f"the topology level {each} instead of {asked}", each, None) for each in self._levels_above(asked)
        ]
        choices.append((f"the topology level {asked} preferred instead of required", None, asked))
        for change, required, preferred in choices:
            found = self._with_requests(asked, change, required=required, preferred=preferred)
            if found is not None:
                return found
        return None

    def other_slice_level(self) -> Remedy | None:
        """The nearest level above that of its slices."""
        levels = (request.pod_set_slice_required_topology for request in self._requests())
        asked = next(filter(None, levels), None)
        if asked is None:
            return None
        for level in self._levels_above(asked):
            change = f"the topology level {level} for slices instead of {asked}"
            found = self._with_requests(asked, change, pod_set_slice_required_topology=level)
            if found is not None:
                return found
        return None

    def _requests(self) -> Iterator[TopologyRequest]:
        for pod_set in self.workload.spec.pod_sets:
            if pod_set.topology_request is not None:
                yield pod_set.topology_request

    def _levels_above(self, level: str) -> list[str]:
        """The levels above one, the nearest first, in the topologies of the flavors."""
        found: dict[str, None] = {}
        for topology in self.trial.queue.topologies.values():
            levels = list(topology.levels)
            if level in levels:
                found |= dict.fromkeys(reversed(levels[: levels.index(level)]))
        return list(found)

    def _with_requests(self, asked: str, change: str, **fields: str | None) -> Remedy | None:
        """The Workload with other fields of the topology requests that have a level in one of these."""
        changed = [
            msgspec.structs.replace(pod_set, topology_request=msgspec.structs.replace(request, **fields))
            if (request := pod_set.topology_request) is not None and asked in (getattr(request, f) for f in fields)
            else pod_set
            for pod_set in self.workload.spec.pod_sets
        ]
        return self._tried(changed, change)


def _selecting(pod_set: PodSet, flavor: ResourceFlavor, keys: set[str]) -> PodSet:
    """A pod set whose pods select the nodes of a flavor, by labels of these keys, and tolerate its taints.

    One that does not exclude the flavor stays as it is.
    """
    spec, wanted = pod_set.template.spec, flavor.spec
    tolerations = [*spec.tolerations, *wanted.tolerations]
    missing = [taint for taint in wanted.node_taints if not any(tolerates(each, taint) for each in tolerations)]
    other = {key: value for key, value in spec.node_selector.items() if key in keys}
    selects = any(wanted.node_labels.get(key) != value for key, value in other.items())
    affinity = spec.affinity
    has_affinity = affinity is not None and affinity.node_affinity is not None
    if not (missing or selects or has_affinity):
        return pod_set
    kept = {key: value for key, value in spec.node_selector.items() if key not in keys}
    spec = msgspec.structs.replace(
        spec,
        node_selector=kept | wanted.node_labels,
        affinity=None if affinity is None else msgspec.structs.replace(affinity, node_affinity=None),
        tolerations=[*spec.tolerations, *map(_tolerating, missing)],
    )
    return msgspec.structs.replace(pod_set, template=msgspec.structs.replace(pod_set.template, spec=spec))


def _tolerating(taint: Taint) -> Toleration:
    return Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)


def _nodes_of(info: WorkloadInfo) -> dict[str, int]:
    """How many pods each node gets, if the topology assignment says so."""
    found: Counter[str] = Counter()
    for pod_set in info.pod_sets:
        if pod_set.topology is not None and pod_set.topology.levels[-1] == _HOSTNAME:
            for domain in pod_set.topology.domains:
                found[domain.values[-1]] += domain.count
    return dict(found)
