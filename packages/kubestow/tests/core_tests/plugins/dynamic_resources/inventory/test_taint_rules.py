"""DeviceTaintRules: which devices they taint, and what their changes requeue (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.plugins.dynamic_resources.devices import GPU, NODE, DeviceHarness, single_node
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceTaintRule, ResourceSlice
from kubestow.config import FeatureGates
from kubestow.plugins.dynamic_resources.requests import Features
from kubestow.plugins.dynamic_resources.taint_rules import TaintedSlices
from kubestow.rules.minors import Minor
from kubestow.scheduling.events.resources import resource_of, watched_always
from kubestow.testing import node
from kubestow.testing.devices import DRIVER, claim, device, device_class, exactly, pod_with, slice_of, taint_rule
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

#: The minor versions that have the gate, with it on.
ENABLED: list[dict[str, Any]] = [
    {"minor": Minor(35), "gates": {"DRADeviceTaints": True, "DRADeviceTaintRules": True}},
    {"minor": Minor(36), "gates": {"DRADeviceTaintRules": True}},
    {"minor": Minor(37)},
]
enabled = pytest.mark.parametrize("version", ENABLED, ids=lambda version: str(version["minor"]))
SLICES = slice_of("d0", "d1", node="n")
#: A rule of which nothing but the taint is known.
WITHOUT_SELECTOR = convert(
    DeviceTaintRule, {"metadata": {"name": "r"}, "spec": {"taint": {"key": "r", "effect": "NoExecute"}}}
)


def allocated(*objects: Any, **fields: Any) -> list[str]:
    harness = single_node(SLICES, claim(), *objects, **fields)
    return harness.devices() if harness.run(pod_with("c")).node_name is not None else []


@enabled
@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (taint_rule(driver=DRIVER), []),
        (taint_rule(driver="other.example.com"), ["r=d0"]),
        (taint_rule(pool="n"), []),
        (taint_rule(pool="m"), ["r=d0"]),
        (taint_rule(device="d0"), ["r=d1"]),
        (taint_rule(driver=DRIVER, pool="n", device="d0"), ["r=d1"]),
        (taint_rule(driver=DRIVER, pool="m", device="d0"), ["r=d0"]),
        (taint_rule(driver="", device="d0"), ["r=d0"]),
        (taint_rule(), []),
        (WITHOUT_SELECTOR, []),
        (taint_rule(effect="None"), ["r=d0"]),
        (taint_rule(effect="NoExecute", device="d0"), ["r=d1"]),
    ],
)
def test_a_rule_keeps_the_devices_that_it_selects_from_being_allocated(
    version: dict[str, Any], rule: DeviceTaintRule, expected: list[str]
) -> None:
    assert allocated(rule, **version) == expected


@enabled
def test_a_toleration_covers_the_taint_of_a_rule(version: dict[str, Any]) -> None:
    tolerant = claim("c", exactly(tolerations=[{"key": "rule", "operator": "Exists"}]))
    assert allocated(tolerant, taint_rule(), **version) == ["r=d0"]
    assert allocated(tolerant, taint_rule(), taint_rule("other", device="d0"), **version) == ["r=d1"]


@pytest.mark.parametrize(
    "version",
    [
        {},
        {"minor": Minor(37), "gates": {"DRADeviceTaintRules": False}},
        {"minor": Minor(35), "gates": {"DRADeviceTaints": True}},
        {"minor": Minor(34)},
        {"minor": Minor(33), "gates": {"DynamicResourceAllocation": True}},
    ],
)
def test_without_the_gate_rules_are_neither_applied_nor_watched(version: dict[str, Any]) -> None:
    assert allocated(taint_rule(), **version) == ["r=d0"]
    gates = FeatureGates(version.get("gates"), minor=version.get("minor", Minor(36)))
    assert resource_of(DeviceTaintRule) not in watched_always(gates)


@pytest.mark.parametrize("version", [*ENABLED, {"minor": Minor(34), "gates": {"DRADeviceTaints": True}}])
def test_with_the_gate_rules_are_watched(version: dict[str, Any]) -> None:
    gates = FeatureGates(version.get("gates"), minor=version["minor"])
    assert resource_of(DeviceTaintRule) in watched_always(gates)


def test_a_device_that_fits_the_class_of_a_rule_is_tainted_when_the_class_comes() -> None:
    version: dict[str, Any] = {"minor": Minor(34), "gates": {"DRADeviceTaints": True}}
    harness = single_node(SLICES, claim(), taint_rule(deviceClassName="any"), **version)
    assert harness.decide(pod_with("c")).node_name == "n"
    harness.put(device_class("any"))
    assert harness.decide(pod_with("c")).node_name is None
    harness.put(device_class("any", "false"))
    assert harness.decide(pod_with("c")).node_name == "n"


def test_a_rule_may_change_after_one_of_its_slices_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = slice_of("d2", node="m")
    gates = {"DRADeviceTaintRules": True}
    objects = (NODE, node("m"), SLICES, elsewhere, claim(), taint_rule(device="d0"))
    harness = DeviceHarness(*objects, gates=gates)
    harness.cluster.catalog(ResourceSlice).remove("", SLICES.metadata.name)
    assert harness.decide(pod_with("c")).node_name == "m"
    harness.put(taint_rule(device="d2"))
    assert harness.decide(pod_with("c")).node_name is None
    harness.put(SLICES)
    assert harness.run(pod_with("c")).node_name == "n"
    assert harness.devices() == ["r=d0"]
    assert caplog.text == ""


# -- changes -------------------------------------------------------------------------------------------------------


def put(cluster: SchedulerHarness, rule: DeviceTaintRule, version: int) -> None:
    metadata = msgspec.structs.replace(rule.metadata, resource_version=str(version))
    cluster.cluster.put(msgspec.structs.replace(rule, metadata=metadata))


@enabled
@pytest.mark.parametrize("is_removed", [True, False])
def test_the_end_of_a_taint_requeues_the_pods_that_wait_for_devices(version: dict[str, Any], is_removed: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod_with("c"))
        await harness.advance(60)
        assert harness.node_of("p") == ""
        before = len(harness.cluster.events)
        put(harness, taint_rule(device="d0", driver="another.example.com"), 7)  # taints nothing
        harness.cluster.put(taint_rule("unrelated", driver="another.example.com"))
        put(harness, taint_rule("stays", effect="None"), 8)
        if is_removed:
            harness.cluster.remove(taint_rule())
        else:
            put(harness, taint_rule(pool="m"), 9)
        await harness.advance(1)
        assert harness.node_of("p") == "n"
        assert len(harness.cluster.events) > before

    in_virtual_time(scenario, NODE, GPU, device_class(), claim(), taint_rule(), **version)


def test_a_rule_that_changes_no_taint_requeues_no_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod_with("c"))
        await harness.advance(60)
        attempts = len(harness.cluster.events)
        harness.cluster.put(taint_rule("unrelated", driver="another.example.com"))
        put(harness, taint_rule(), 7)  # as if its status had changed
        await harness.advance(60)
        assert len(harness.cluster.events) == attempts
        harness.cluster.put(taint_rule("another"))
        await harness.advance(60)
        assert len(harness.cluster.events) > attempts

    in_virtual_time(scenario, NODE, GPU, device_class(), claim(), taint_rule(), **ENABLED[1])


names = st.sampled_from(["a", "b", None])
rules = st.builds(
    lambda name, driver, pool, wanted: taint_rule(
        name, **{key: value for key, value in (("driver", driver), ("pool", pool), ("device", wanted)) if value}
    ),
    st.sampled_from(["r0", "r1", "r2"]),
    names,
    names,
    names,
)
slices = st.builds(
    lambda name, driver, pool, devices: slice_of(
        *(device(each, taints=[{"key": "own", "effect": "None"}]) for each in devices),
        name=name,
        driver=driver,
        pool=pool,
    ),
    st.sampled_from(["s0", "s1", "s2"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["a", "b"]),
    st.sets(st.sampled_from(["a", "b", "c"])).map(sorted),
)


def taints_by_definition(published: ResourceSlice, applied: Sequence[DeviceTaintRule]) -> Iterator[list[str]]:
    for each in published.spec.devices:
        keys = [taint.key for taint in each.taints]
        for rule in applied:
            selector = rule.spec.device_selector
            assert selector is not None
            wanted = (selector.driver, selector.pool, selector.device)
            actual = (published.spec.driver, published.spec.pool.name, each.name)
            if all(name in (None, own) for name, own in zip(wanted, actual, strict=True)):
                keys.append(rule.metadata.name)
        yield keys


@given(st.lists(st.tuples(st.booleans(), st.one_of(rules, slices)), max_size=12))
def test_the_taints_are_those_of_all_rules_that_select_a_device(changes: list[tuple[bool, Any]]) -> None:
    harness = DeviceHarness(gates={"DRADeviceTaintRules": True})
    cluster = harness.cluster
    tainted = TaintedSlices(harness.plugin._filter._handle, Features())
    for is_removed, obj in changes:
        before, version = {each.metadata.name: each for each in tainted}, tainted.version
        if is_removed:
            cluster.catalog(type(obj)).remove("", obj.metadata.name)
        else:
            harness.put(obj)
        found = {each.metadata.name: each for each in tainted}
        applied = list(cluster.catalog(DeviceTaintRule))
        for published in cluster.catalog(ResourceSlice):
            name = published.metadata.name
            keys = [[taint.key for taint in each.taints] for each in found[name].spec.devices]
            assert keys == list(taints_by_definition(published, applied))
            if isinstance(obj, DeviceTaintRule) and found[name] == before[name]:
                assert found[name] is before[name]
        assert found.keys() == {each.metadata.name for each in cluster.catalog(ResourceSlice)}
        assert tainted.version > version or found == before
