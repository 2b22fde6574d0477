"""The index of rejected pods by hint keys: it loses no pod that a hint can requeue, and keeps nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from random import Random
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, composite, group, member
from core_tests.scheduling.queue.random_objects import GPU, random_event, random_pod
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass
from kubestow.api.scheduling import CompositePodGroup, PodGroup, Workload
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.rules.minors import MINORS, Minor
from kubestow.scheduling.queue.hint_index import Amounts, HintIndex
from kubestow.scheduling.queue.queueing_hints import QueueingHints
from kubestow.scheduling.queued_pod import QueueingStrategy
from kubestow.testing import PluginHarness, pod

Keys = Mapping[Hashable, Amounts] | None


# -- the index -----------------------------------------------------------------------------------------------------


def random_keys(random: Random) -> Keys:
    if random.random() < 0.1:
        return None
    keys = random.sample("abcdef", random.randrange(4))
    return {key: tuple(random.randrange(9) for _ in range(random.choice([0, 0, 2, 2, 2, 3]))) for key in keys}


def may_help(offered: Keys, wanted: Keys) -> bool:
    """Whether an event with some keys may help a pod with others, as HintKeys says."""
    if offered is None or wanted is None:
        return True
    common = [(offered[key], wanted[key]) for key in offered.keys() & wanted.keys()]
    return any(
        len(limits) != len(amounts) or all(amount <= limit for amount, limit in zip(amounts, limits, strict=True))
        for limits, amounts in common
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_index_finds_what_a_look_at_everything_finds(seed: int) -> None:
    random = Random(seed)
    index: HintIndex[int] = HintIndex()
    waiting: dict[int, dict[str, Keys]] = {}
    for number in range(300):
        if waiting and random.random() < 0.4:
            gone = random.choice(list(waiting))
            index.remove(gone, waiting.pop(gone))
        else:
            waiting[number] = {plugin: random_keys(random) for plugin in random.sample("PQR", random.choice([1, 2]))}
            index.add(number, waiting[number])
        offered = {plugin: random_keys(random) for plugin in random.sample("PQR", 2)}
        found = index.find(offered)
        assert len(found) == len(set(found))
        assert set(found) == {
            each
            for each, wanted in waiting.items()
            if any(plugin in wanted and may_help(keys, wanted[plugin]) for plugin, keys in offered.items())
        }
    for each, wanted in waiting.items():
        index.remove(each, wanted)
    assert not any((index.plugins, index._without_keys, index._by_key, index._by_amounts))


def test_the_arrays_of_amounts_shrink_with_what_waits() -> None:
    index: HintIndex[int] = HintIndex()
    for number in range(1000):
        index.add(number, {"P": {"key": (number,)}})
    for number in range(1, 1000):
        index.remove(number, {"P": {"key": (number,)}})
    assert index._by_amounts["P", "key"][1]._amounts.size <= 64
    assert index.find({"P": {"key": (0,)}}) == [0]


# -- the keys of the plugins in tree ---------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", MINORS, ids=lambda minor: str(minor.number))
def test_hints_say_queue_only_for_pods_with_a_key_of_the_event(minor: Minor) -> None:
    random = Random(minor.number)
    profile = {
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"ignoredResources": ["example.com/nic"] if minor.number % 2 else []}}
        ]
    }
    harness = PluginHarness(minor=minor, profile=profile)
    classes = harness.cluster.catalog(DeviceClass)
    pods = [harness.info(random_pod(random, f"p{number}")) for number in range(60)]
    hints = QueueingHints(harness.profiles)
    indexes = {
        plugin.name: HintIndex[int]()
        for plugin in harness.profiles["default-scheduler"].plugins
        if any(registration.hint_keys is not None for registration in plugin.events_to_register)
    }
    for number, info in enumerate(pods):
        for name, index in indexes.items():
            index.add(number, hints.keys(info, [name]))
    queued = spared = 0
    for step in range(150):
        if step % 50 == 49:
            classes.put(convert(DeviceClass, {"metadata": {"name": "d"}, "spec": {"extendedResourceName": GPU}}))
        event, old, new = random_event(random, harness.info)
        matching = hints.matching(event)
        for name, registrations in matching.get("default-scheduler", {}).items():
            if name not in indexes:
                continue
            found = set(indexes[name].find(hints.keys_of(matching, old, new, rejectors=[name])))
            for number, info in enumerate(pods):
                if any(each.hint is None or each.hint(info, old, new) for each in registrations):
                    queued += 1
                    assert number in found, (name, event.label, info.pod, old, new)
                else:
                    spared += number not in found
    assert queued > 100
    assert spared > 100


NAMES = "abcd"


def random_group(random: Random, kind: type, known: Callable[[str], Any]) -> Any:
    """One of a few groups, which may have a composite one as its parent: the one that it has if it is ``known``."""
    name, minimum = random.choice(NAMES), random.choice([0, 1, 2])
    parent = random.choice(["", *NAMES])
    if kind in (CompositePodGroup, PodGroup) and (before := known(name)) is not None:
        parent = before.spec.parent_composite_pod_group_name or ""
    if kind is CompositePodGroup:
        return composite(name, minimum, parent=parent if parent > name else "")
    if kind is PodGroup:
        return group(name, minimum, **({"parentCompositePodGroupName": parent} if parent else {}))
    policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    spec = {"podGroups": [{"name": "main", "policy": policy}]}
    return convert(Workload, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def random_member(random: Random, name: str, minor: Minor) -> Pod:
    of, gates = random.choice(NAMES), ["wait"] if random.random() < 0.1 else []
    if minor.number == 35:
        return pod(name, gates=gates, spec={"workloadRef": {"name": of, "podGroup": random.choice(["main", "other"])}})
    return member(name, of, gates=gates)


def random_event_of_groups(random: Random, harness: PluginHarness, minor: Minor) -> tuple[ClusterEvent, Any, Any]:
    """An event of a group or of a pending pod, after the cluster has changed accordingly."""
    if random.random() < 0.5:
        kind = random.choice(KINDS_OF_GROUPS[minor.number])
        catalog: Catalog[Any] = harness.cluster.catalog(kind)
        if random.random() < 0.3 and len(catalog):
            catalog.remove("default", random.choice(list(catalog)).metadata.name)  # helps no pod
        group = random_group(random, kind, lambda name: catalog.get("default", name))
        old = catalog.get("default", group.metadata.name)
        catalog.put(group)
        resource = EventResource.POD_GROUP if kind is PodGroup else kind.resource
        return ClusterEvent(resource, Action.ADD if old is None else Action.UPDATE), old, group
    pod = harness.info(random_member(random, f"p{random.random()}", minor))
    if random.random() < 0.3:
        return ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.DELETE), pod, None
    harness.cluster.observe_pod(pod)
    return ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.ADD), None, pod


KINDS_OF_GROUPS: dict[int, list[Any]] = {35: [Workload], 36: [PodGroup], 37: [PodGroup, CompositePodGroup]}
GATES_OF_GROUPS = {35: GATES, 36: GATES, 37: {"GenericWorkload": True, "CompositePodGroup": True}}


@pytest.mark.parametrize("number", KINDS_OF_GROUPS)
@pytest.mark.parametrize("seed", range(4))
def test_what_happens_to_groups_has_a_key_of_each_pod_that_it_helps(number: int, seed: int) -> None:
    random, minor = Random(seed), Minor(number)
    harness = PluginHarness(minor=minor, gates=GATES_OF_GROUPS[number])
    hints, queueing = QueueingHints(harness.profiles), harness.profiles["default-scheduler"].queueing
    rejectors = ["GangScheduling"]
    pods = [harness.info(random_member(random, f"p{number}", minor)) for number in range(30)]
    index: HintIndex[int] = HintIndex()
    keys = []
    for place, info in enumerate(pods):
        harness.cluster.observe_pod(info)
        keys.append(hints.keys(info, rejectors))
        index.add(place, keys[place])
    helped = spared = 0
    for _ in range(150):
        event, old, new = random_event_of_groups(random, harness, minor)
        found = set(index.find(hints.keys_of(hints.matching(event), old, new, rejectors=rejectors)))
        decisions = hints.decisions(event, hints.filtered(event, old, new), old, new)
        for place, info in enumerate(pods):
            if decisions.of(info, rejectors=rejectors, pending_plugins=[]) is QueueingStrategy.SKIP:
                spared += place not in found
            else:
                helped += 1
                if place not in found:  # it would be gated again, as the pods of a tree are that is not ready
                    assert not queueing.run_pre_enqueue_plugins(info).ok, (event.label, info.pod, old, new)
                    continue
                index.remove(place, keys[place])  # it waits anew, for what it lacks now
                keys[place] = hints.keys(info, rejectors)
                index.add(place, keys[place])
    assert helped > 100
    assert spared > 100


def test_the_keys_of_a_pod_are_in_proportion_to_its_size() -> None:
    """Terms with many namespaces and values have no keys for each pair of them."""
    harness = PluginHarness()
    namespaces, values = [f"n{number}" for number in range(100)], [f"v{number}" for number in range(100)]
    term = {
        "topologyKey": "zone",
        "namespaces": namespaces,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]},
    }
    terms = [{**term, "topologyKey": f"zone-{number}"} for number in range(50)]
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    keys = QueueingHints(harness.profiles).keys(harness.info(pod("p", affinity=affinity)), ["InterPodAffinity"])
    assert keys["InterPodAffinity"] is not None
    assert len(keys["InterPodAffinity"]) <= 50 * 200
