"""The victims on all nodes are those that removing and adding pods node by node selects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.result import Unschedulable
from kubestow.testing import PluginHarness, node, pod
from kubestow_contrib.capacity_scheduling import CapacityScheduling, ElasticQuota

PROFILE = {
    "plugins": {
        "preFilter": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"enabled": [{"name": "CapacityScheduling"}], "disabled": [{"name": "*"}]},
        "reserve": {"enabled": [{"name": "CapacityScheduling"}]},
    }
}
NODES = ["n0", "n1"]
GPU = "example.com/gpu"
#: Of cpu, memory and GPUs.
ON_NODE = {"cpu": 6, "memory": 6, GPU: 2}


def slack(least: int, most: int) -> st.SearchStrategy[dict[str, int]]:
    """How far the bounds of a quota are from what its pods use."""
    return st.fixed_dictionaries(
        {"cpu": st.integers(least, most), "memory": st.integers(0, 4)}, optional={GPU: st.integers(-1, 2)}
    )


quotas = st.fixed_dictionaries(
    {"a": st.tuples(slack(-1, 5), slack(-1, 5)), "b": st.tuples(slack(-4, 1), slack(0, 3) | st.none())},
    optional={"c": st.tuples(slack(-4, 1) | st.none(), st.none())},
)
requests = st.fixed_dictionaries(
    {"cpu": st.integers(1, 3), "memory": st.integers(0, 1)}, optional={GPU: st.integers(1, 2)}
)
pods: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    namespace=st.sampled_from(["a", "a", "b", "b", "b", "c", "d"]),
    requests=requests,
    priority=st.sampled_from([0, 0, 1, 3]),
)
placed = st.lists(st.tuples(st.sampled_from(NODES), pods), min_size=5, max_size=9)
subjects: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict, namespace=st.sampled_from(["a", "a", "a", "d"]), requests=requests, priority=st.sampled_from([0, 2, 3])
)


def texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{amount}" for name, amount in amounts.items()}


def made(name: str, fields: dict[str, Any], **more: Any) -> Pod:
    requested = texts(fields["requests"])
    return pod(name, namespace=fields["namespace"], priority=fields["priority"], requests=requested, **more)


def quota(namespace: str, minimum: dict[str, int] | None, maximum: dict[str, int] | None) -> ElasticQuota:
    spec = {"min": minimum and texts(minimum), "max": maximum and texts(maximum)}
    return convert(ElasticQuota, {"metadata": {"name": "q", "namespace": namespace}, "spec": spec})


def harness_with(
    limits: dict[str, Any], on_nodes: list[tuple[str, dict[str, Any]]], nominated: list[tuple[str, dict[str, Any]]]
) -> PluginHarness:
    """Two nodes; no two pods have the same start time."""
    running = [
        made(f"p{number}", fields, node=name, status={"startTime": f"2026-01-01T00:00:{59 - number:02}Z"})
        for number, (name, fields) in enumerate(on_nodes)
    ]
    found = PluginHarness(
        [node(name, allocatable=texts(ON_NODE)) for name in NODES],
        running,
        profile=PROFILE,
        plugins=[CapacityScheduling],
    )
    for namespace, bounds in limits.items():
        found.cluster.catalog(ElasticQuota).put(quota(namespace, *bounds))
    for number, (name, fields) in enumerate(nominated):
        found.cluster.nominate(found.info(made(f"nominated-{number}", fields)), name)
    return found


class Reference:
    """scheduler-plugins' rules for one pod, node by node, with everything summed up anew for every question."""

    def __init__(self, harness: PluginHarness, limits: dict[str, Any], subject: PodInfo) -> None:
        self.cluster, self.subject = harness.cluster, subject
        self.minimum = {namespace: in_units(bounds[0] or {}) for namespace, bounds in limits.items()}
        self.maximum = {namespace: in_units(bounds[1]) for namespace, bounds in limits.items()}
        self.gone: set[str] = set()
        waiting = [info for name in NODES for info in self.cluster.nominated_pods(name)]
        more_important = [i for i in waiting if i.namespace == subject.namespace and i.priority >= subject.priority]
        others = [
            i
            for i in waiting
            if i.namespace != subject.namespace and i.namespace in limits and not self.is_borrowing(i.namespace)
        ]
        self.own = total([subject])
        self.in_quota = total([subject, *more_important])
        self.in_total = total([subject, *more_important, *others])

    def used(self, namespace: str) -> Counter[str]:
        on_nodes = [info for pods in self.cluster.nodes.pods for info in pods.values()]
        return total(info for info in on_nodes if info.namespace == namespace and info.uid not in self.gone)

    def is_borrowing(self, namespace: str) -> bool:
        used = self.used(namespace)
        return any(amount > self.minimum[namespace].get(name, 0) for name, amount in used.items())

    def permits(self, in_quota: Counter[str], in_total: Counter[str]) -> bool:
        namespace = self.subject.namespace
        if namespace not in self.minimum:
            return True
        maximum, used = self.maximum[namespace], self.used(namespace)
        if maximum is not None:
            for name in {"cpu", "memory", *in_quota}:
                if (name in maximum or name != GPU) and used[name] + in_quota[name] > maximum.get(name, 0):
                    return False
        everything = sum((self.used(each) for each in self.minimum), in_total.copy())
        return all(
            amount <= sum(minimum.get(name, 0) for minimum in self.minimum.values())
            for name, amount in everything.items()
        )

    def fits(self, name: str) -> bool:
        nominated = [i for i in self.cluster.nominated_pods(name) if i.priority >= self.subject.priority]
        row = self.cluster.nodes.rows[name]
        staying = [info for info in self.cluster.nodes.pods[row].values() if info.uid not in self.gone]
        used = total([*staying, *nominated])
        available = in_units(ON_NODE)
        return all(
            not amount or used[resource] + amount <= available[resource] for resource, amount in self.own.items()
        )

    def lends(self) -> bool:
        namespace = self.subject.namespace
        if namespace not in self.minimum:
            return False
        used, minimum = self.used(namespace), self.minimum[namespace]
        return all(
            used[name] + self.in_quota[name] <= minimum.get(name, 0) for name in {"cpu", "memory", *self.in_quota}
        )

    def victims(self, name: str) -> list[str]:
        """The victims on a node, the most important first; empty if the pod cannot be made to fit there."""
        self.gone = set()
        lends, namespace = self.lends(), self.subject.namespace
        row = self.cluster.nodes.rows[name]
        on_node = sorted(self.cluster.nodes.pods[row].values(), key=importance)
        potential = []
        for info in reversed(on_node):
            if lends:
                of_others = info.namespace != namespace and info.namespace in self.minimum
                evictable = of_others and self.is_borrowing(info.namespace)
            else:
                comparable = (
                    info.namespace == namespace if namespace in self.minimum else info.namespace not in self.minimum
                )
                evictable = comparable and info.priority < self.subject.priority
            if evictable:
                potential.append(info)
                self.gone.add(info.uid)
        if not potential or not self.fits(name) or not self.permits(self.own, self.own):
            return []
        for info in sorted(potential, key=importance):
            self.gone.discard(info.uid)
            if not self.fits(name) or not self.permits(self.in_quota, self.in_total):
                self.gone.add(info.uid)
        return [info.name for info in sorted(potential, key=importance) if info.uid in self.gone]


def importance(info: PodInfo) -> Any:
    return -info.priority, info.status.start_time


def total(infos: Iterable[PodInfo]) -> Counter[str]:
    found: Counter[str] = Counter()
    for info in infos:
        found.update(info.requests)
    return found


def in_units(bounds: Any) -> Any:
    """CPU as millicores."""
    return bounds and {name: amount * 1000 if name == "cpu" else amount for name, amount in bounds.items()}


def near(slack: dict[str, int] | None, namespace: str, on_nodes: list[tuple[str, dict[str, Any]]]) -> Any:
    """Bounds that are so far from what the pods of a namespace use; none without slack."""
    used = Counter[str]()
    for _, fields in on_nodes:
        if fields["namespace"] == namespace:
            used.update(fields["requests"])
    return slack and {name: max(0, used[name] + amount) for name, amount in slack.items()}


@settings(max_examples=120)
@given(quotas, placed, st.lists(st.tuples(st.sampled_from(NODES), pods), max_size=3), subjects)
def test_victims_are_those_that_each_node_by_itself_has(
    slacks: dict[str, Any],
    on_nodes: list[tuple[str, dict[str, Any]]],
    nominated: list[tuple[str, dict[str, Any]]],
    subject: dict[str, Any],
) -> None:
    limits = {
        namespace: (near(minimum, namespace, on_nodes), near(maximum, namespace, on_nodes))
        for namespace, (minimum, maximum) in slacks.items()
    }
    harness = harness_with(limits, on_nodes, nominated)
    decision = harness.decide(made("subject", subject))
    if not isinstance(decision, Unschedulable):
        return
    reference = Reference(harness, limits, decision.pod)
    expected = {name: victims for name in NODES if (victims := reference.victims(name))}

    nomination = decision.post_filter.nominating_result
    assert nomination is not None
    found = nomination.extender_candidates
    selected = {} if found is None else found.victims_by_node()
    assert {name: [info.name for info in victims.pods] for name, victims in selected.items()} == expected
