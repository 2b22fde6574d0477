"""What former minor versions do otherwise (semantics 8.16): every behaviour, in the two minor versions around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from core_tests.plugins.dynamic_resources.devices import (
    GPU,
    DeviceHarness,
    condition,
    report_while_waiting,
    single_node,
)
from kubestow.api.core import Pod
from kubestow.config.defaults import default_plugins
from kubestow.config.feature_gates import FeatureGates
from kubestow.errors import ConfigurationError
from kubestow.framework.interface import ScorePlugin
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import node, pod
from kubestow.testing.devices import (
    DRIVER,
    allocation,
    claim,
    device,
    device_class,
    exactly,
    pod_with,
    slice_of,
    subrequests,
    taint_rule,
)

CANNOT = "0/1 nodes are available: 1 cannot allocate all claims."
INDEX_0 = f'device.attributes["{DRIVER}"].index == 0'
INDEX_1 = f'device.attributes["{DRIVER}"].index == 1'


def harness(minor: Minor, *objects: Any, gates: Sequence[str] = (), **fields: Any) -> DeviceHarness:
    """A harness of a minor version: with these gates and DynamicResourceAllocation on, all others as by default."""
    return single_node(
        *objects, minor=minor, gates=dict.fromkeys(("DynamicResourceAllocation", *gates), True), **fields
    )


def outcome(found: DeviceHarness, incoming: Pod) -> Any:
    """The devices of the claim ``c``, or the beginning of the message."""
    decision = found.place(incoming)
    if decision.node_name is not None:
        found.prepare(decision)
    return found.devices() if decision.node_name is not None else decision.message


class Case(NamedTuple):
    """What is observed, in the minor version that brought a behaviour, and in the one before."""

    observe: Callable[[Minor], Any]
    now: Any
    before: Any


def devices(now: Any, before: Any, *objects: Any, gates: Sequence[str] = ()) -> Case:
    """The devices that are allocated to the claim ``c``."""
    return Case(lambda minor: outcome(harness(minor, *objects, gates=gates), pod_with("c")), now, before)


def indexed(*names: str, **fields: Any) -> list[Any]:
    return [device(name, attributes={"index": number}, **fields) for number, name in enumerate(names)]


def counters(name: str, value: str) -> list[Any]:
    return [{"name": name, "counters": {"memory": {"value": value}}}]


def consuming(name: str, value: str, *, groups: Sequence[str] = (), **fields: Any) -> Any:
    consumed = {"counterSet": "card", "counters": {"memory": {"value": value}}, "compatibilityGroups": list(groups)}
    return device(name, consumesCounters=[consumed], **fields)


def rule_with_selectors(minor: Minor) -> Any:
    """Of a pod whose device is tainted by a rule, unless its device class or its selectors count."""
    gates = ("DRADeviceTaints", *(("DRADeviceTaintRules",) if minor.number > 34 else ()))
    rules = [
        taint_rule("class", deviceClassName="second"),
        taint_rule("missing-class", deviceClassName="missing"),
        taint_rule("selector", selectors=[{"cel": {"expression": INDEX_1}}]),
        taint_rule("failing", selectors=[{"cel": {"expression": "device.attributes['x'].y"}}]),
    ]
    slices = slice_of(*indexed("d0", "d1"), node="n")
    outcomes = [
        outcome(harness(minor, slices, device_class("second", INDEX_1), claim(), rule, gates=gates), pod_with("c"))
        for rule in rules
    ]
    assert all(shortened(each) == shortened(outcomes[0]) for each in outcomes)
    return outcomes[0]


def shared(name: str, memory: str, **fields: Any) -> Any:
    return device(name, capacity={"memory": {"value": memory}}, allowMultipleAllocations=True, **fields)


def asking(memory: str, count: int = 1, **fields: Any) -> Any:
    return exactly(count, capacity={"requests": {"memory": memory}}, **fields)


# -- what is not about devices -------------------------------------------------------------------------------------


def has_score(minor: Minor) -> bool:
    return isinstance(harness(minor).plugin, ScorePlugin)


def owner_text(minor: Minor) -> Any:
    owned = claim("made", metadata={"ownerReferences": [{"kind": "Pod", "uid": "other", "controller": True}]})
    references = [{"name": "x", "resourceClaimTemplateName": "t"}]
    statuses = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": "made"}]}
    found = harness(minor, owned)
    return found.plugin.pre_enqueue(found.info(pod("p", spec={"resourceClaims": references}, status=statuses))).reasons


def search_that_takes_too_long(minor: Minor) -> Any:
    args = {"kind": "DynamicResourcesArgs", "apiVersion": "kubescheduler.config.k8s.io/v1", "filterTimeout": "1ms"}
    profile = {"pluginConfig": [{"name": "DynamicResources", "args": args}]}
    halves = slice_of(*(device(f"d{number}", attributes={"half": number % 2}) for number in range(40)), node="n")
    together = [{"matchAttribute": f"{DRIVER}/half"}]
    found = harness(minor, halves, claim("c", exactly(21), constraints=together), profile=profile)
    return found.decide(pod_with("c")).message.partition(".")[0]


def failed_binding(minor: Minor) -> Any:
    conditions = device("d0", bindingConditions=["Attached"], bindingFailureConditions=["Broken"])
    gates = ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
    found = harness(minor, slice_of(conditions, node="n"), claim(), gates=gates)
    report_while_waiting(found, condition("Broken", reason="Fire"))
    return found.prepare(found.place(pod_with("c"))).reasons[0]


def recorded_configurations(minor: Minor) -> Any:
    """The requests of each configuration in the allocation of a claim with two requests."""
    named = [["a", "b"], ["b"], ["a", "gone"], []]
    configurations = [{"requests": names, "opaque": {"driver": DRIVER, "parameters": {}}} for names in named]
    two = exactly(name="a"), exactly(name="b")
    found = harness(minor, slice_of("d0", "d1", node="n"), claim("c", *two, config=configurations))
    found.prepare(found.place(pod_with("c")))
    allocated = found.claim().status.allocation
    return None if allocated is None else [config.requests for config in allocated.devices.config]


def failed_selectors(minor: Minor) -> Any:
    """The messages for selectors that read what a device does not have, and that are no expressions."""
    selectors = f'device.attributes["{DRIVER}"].absent == 1', "what?"
    objects = ([slice_of("d0", node="n"), claim("c", exactly(1, one))] for one in selectors)
    absent, invalid = (harness(minor, *each).decide(pod_with("c")).message for each in objects)
    return absent, invalid.partition(" compilation")[0]


_SELECTOR = 'running "DynamicResources" filter plugin: claim default/c: selector #0'
_NOT_HELPFUL = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


def message_without_claims(minor: Minor) -> str:
    return harness(minor).decide(pod("p", requests={"cpu": "1000"})).message


def init_container_and_container(minor: Minor) -> Any:
    containers = {
        kind: [{"name": kind, "resources": {"requests": {"example.com/gpu": "1"}}}]
        for kind in ("initContainers", "containers")
    }
    named = device_class("gpu", extendedResourceName="example.com/gpu")
    found = harness(minor, GPU, named, gates=("DRAExtendedResource",))
    return found.decide(pod("p", spec=containers)).node_name


def second_pod_after_admin_access(minor: Minor) -> Any:
    gates = () if minor == Minor(31) else ("DRAAdminAccess",)
    found = harness(minor, GPU, claim("admin", exactly(adminAccess=True)), claim(), gates=gates)
    assert found.run(pod_with("admin", name="q")).node_name == "n"
    return outcome(found, pod_with("c"))


def recorded_tolerations(minor: Minor) -> int:
    tolerating = claim("c", exactly(tolerations=[{"operator": "Exists"}]))
    found = harness(minor, GPU, tolerating)
    found.run(pod_with("c"))
    status = found.claim().status.allocation
    assert status is not None
    return len(status.devices.results[0].tolerations)


def two_shares_of_a_device(minor: Minor) -> Any:
    available = counters("card", "1Gi")
    partition = consuming("d0", "1Gi", capacity={"memory": {"value": "9Gi"}}, allowMultipleAllocations=True)
    slices = [slice_of(partition, node="n", sharedCounters=available)]
    if minor.has(Behaviour.COUNTERS_BELONG_TO_POOLS):
        card = slice_of(node="n", name="card", of=2, sharedCounters=available)
        slices = [card, slice_of(partition, node="n", of=2)]
    requests = asking("1Gi"), asking("1Gi", name="s")
    gates = ("DRAPartitionableDevices", "DRAConsumableCapacity")
    return outcome(harness(minor, *slices, claim("c", *requests), gates=gates), pod_with("c"))


CASES: dict[Behaviour, Case] = {
    Behaviour.SCORES_DEVICE_ALTERNATIVES: Case(has_score, True, False),
    Behaviour.CONFIGURATIONS_ARE_RECORDED_ONCE: Case(
        recorded_configurations, [[], ["b"], ["a", "gone"], []], [[], [], ["b"], [], []]
    ),
    Behaviour.SELECTOR_ERRORS_NAME_THE_DEVICE: Case(
        failed_selectors,
        (
            f"{_SELECTOR} on device {DRIVER}/n/d0: CEL runtime error: no such key: absent. consider using CEL optional "
            "chaining (.? followed by orValue()) or guarding the check with has() for optional fields",
            f"{_SELECTOR}: CEL compile error:",
        ),
        (f"{_SELECTOR}: CEL runtime error: no such key: absent", f"{_SELECTOR}: CEL compile error:"),
    ),
    Behaviour.CLAIM_OWNER_IS_CAPITALIZED: Case(
        owner_text,
        ("ResourceClaim default/made was not created for Pod default/p (Pod is not owner)",),
        ("ResourceClaim default/made was not created for pod default/p (pod is not owner)",),
    ),
    Behaviour.DEVICE_SEARCH_TIMEOUT_IS_AN_ERROR: Case(
        search_that_takes_too_long,
        'running "DynamicResources" filter plugin: node n: timed out trying to allocate devices',
        "0/1 nodes are available: 1 timed out trying to allocate devices",
    ),
    Behaviour.DEVICE_BINDING_ERRORS_NAME_THE_CLAIM_LAST: Case(
        failed_binding,
        'device binding failed: claim=c, reason=Fire, message="see log"',
        'claim c binding failed: reason=Fire, message="see log"',
    ),
    Behaviour.POST_FILTER_SKIPS_PODS_WITHOUT_CLAIMS: Case(
        lambda minor: "no new claims to deallocate" in message_without_claims(minor), False, True
    ),
    Behaviour.POST_FILTER_LOOKS_AT_ALL_PODS: Case(
        lambda minor: "no new claims to deallocate" in message_without_claims(minor), True, False
    ),
    Behaviour.POST_FILTER_REPORTS_ONLY_ACTIONS: Case(
        lambda minor: (
            message_without_claims(minor),
            outcome(harness(minor, GPU, claim("c", exactly(2))), pod_with("c")),
        ),
        (
            f"0/1 nodes are available: 1 Insufficient cpu. {_NOT_HELPFUL}",
            f"{CANNOT} {_NOT_HELPFUL}",
        ),
        (
            f"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, {_NOT_HELPFUL}",
            f"{CANNOT} still not schedulable, {_NOT_HELPFUL}",
        ),
    ),
    Behaviour.DEVICE_ALLOCATOR_DEPENDS_ON_GATES: devices(
        ["r=d0"],
        'running "DynamicResources" filter plugin: claim default/c, constraint #0: empty constraint (unsupported '
        "constraint type?)",
        slice_of(*indexed("d0"), node="n"),
        claim("c", constraints=[{"distinctAttribute": f"{DRIVER}/index"}]),
    ),
    Behaviour.DEVICE_STATUS_ALONE_CHOOSES_NO_ALLOCATOR: devices(
        'running "DynamicResources" filter plugin: claim default/c, constraint #0: empty constraint (unsupported '
        "constraint type?)",
        ["r=d0"],
        slice_of(*indexed("d0"), node="n"),
        claim("c", constraints=[{"distinctAttribute": f"{DRIVER}/index"}]),
    ),
    Behaviour.CAPACITY_OF_SUBREQUESTS_IS_REFUSED_BY_NAME: devices(
        'running "DynamicResources" filter plugin: claim default/c, subrequest a0: has capacity requests, but the '
        "DRAConsumableCapacity feature is disabled",
        'running "DynamicResources" filter plugin: claim default/c, request r: has capacity requests, but the '
        "DRAConsumableCapacity feature is disabled",
        GPU,
        claim("c", subrequests(1, capacity={"requests": {"memory": "1"}})),
        gates=("DRADeviceBindingConditions",),
    ),
    Behaviour.DISTINCT_ATTRIBUTE_COMPARES_VALUES: devices(
        CANNOT,
        ["r=d0", "r=d1"],
        slice_of(device("d0", attributes={"x": 1}), device("d1", attributes={"x": 1}), node="n"),
        claim("c", exactly(2), constraints=[{"distinctAttribute": f"{DRIVER}/x"}]),
        gates=("DRADeviceBindingConditions",),
    ),
    Behaviour.UNUSABLE_POOLS_ARE_PASSED_OVER: devices(CANNOT, ["r=d0"], slice_of("d0", node="n", of=2), claim()),
    Behaviour.INVALID_POOLS_ARE_AN_ERROR_AT_ONCE: devices(
        'running "DynamicResources" filter plugin: pool a is invalid: duplicate device name d0',
        ["r=x1"],
        slice_of(*indexed("d0"), *indexed("d0"), node="n", pool="a"),
        slice_of(*indexed("x0", "x1"), node="n", pool="b"),
        claim("c", exactly(1, INDEX_1)),
    ),
    Behaviour.DUPLICATE_DEVICES_ARE_FOUND: devices(
        'running "DynamicResources" filter plugin: pool n is invalid: duplicate device name d0',
        ["r=d0"],
        slice_of("d0", "d0", node="n"),
        claim(),
    ),
    Behaviour.SLICES_OF_A_POOL_ARE_IN_ORDER_OF_NAMES: devices(
        ["r=d0"],
        ["r=d1"],
        slice_of(device("d0", bindingConditions=["Ready"]), node="n", name="s0", of=2),
        slice_of("d1", node="n", name="s1", of=2),
        claim(),
        gates=("DRAConsumableCapacity", "DRADeviceBindingConditions"),
    ),
    Behaviour.COUNTERS_BELONG_TO_POOLS: devices(
        CANNOT,
        ["r=d0"],
        slice_of(consuming("d0", "1Gi"), node="n", sharedCounters=counters("card", "1Gi")),
        claim(),
        gates=("DRAPartitionableDevices",),
    ),
    Behaviour.SLICES_WITH_COUNTERS_ARE_READ_WITHOUT_THE_GATE: devices(
        ["r=d0"], CANNOT, slice_of("d0", node="n", sharedCounters=counters("card", "1Gi")), claim()
    ),
    Behaviour.COUNTERS_ARE_CHARGED_DURING_THE_SEARCH: devices(
        CANNOT,
        ["r=d1"],
        slice_of(
            consuming("d0", "1Gi", taints=[{"key": "k", "effect": "NoSchedule"}]),
            consuming("d1", "1Gi"),
            node="n",
            sharedCounters=counters("card", "1Gi"),
        ),
        claim(),
        gates=("DRAPartitionableDevices", "DRADeviceTaints"),
    ),
    Behaviour.SHARED_DEVICES_CHARGE_COUNTERS_ONCE: Case(two_shares_of_a_device, ["r=d0", "s=d0"], CANNOT),
    Behaviour.SHARES_COUNT_IN_COUNTERS: devices(
        CANNOT,
        ["r=d1"],
        slice_of(node="n", name="card", of=2, sharedCounters=counters("card", "1Gi")),
        slice_of(
            consuming("d0", "1Gi", capacity={"memory": {"value": "1Gi"}}, allowMultipleAllocations=True),
            consuming("d1", "1Gi"),
            node="n",
            of=2,
        ),
        claim("held", status={"allocation": allocation("d0", shareID="s", consumedCapacity={"memory": "1Gi"})}),
        claim(),
        gates=("DRAPartitionableDevices", "DRAConsumableCapacity"),
    ),
    Behaviour.COMPATIBILITY_GROUPS_ARE_READ: devices(
        ["r=d1"],
        ["r=d0"],
        slice_of(node="n", name="card", of=2, sharedCounters=counters("card", "9Gi")),
        slice_of(consuming("d0", "1Gi", groups=["a"]), consuming("d1", "1Gi"), node="n", of=2),
        claim(),
        gates=("DRAPartitionableDevices",),
    ),
    Behaviour.CAPACITY_OF_THE_DEVICE_ITSELF_IS_CHECKED: devices(
        ["r=d1"],
        CANNOT,
        slice_of(shared("d0", "1Gi"), shared("d1", "9Gi"), node="n"),
        claim("c", asking("5Gi")),
        gates=("DRAConsumableCapacity",),
    ),
    Behaviour.ONLY_SOME_TAINTS_PREVENT_ALLOCATION: devices(
        ["r=d0"],
        CANNOT,
        slice_of(device("d0", taints=[{"key": "k", "effect": "None"}]), node="n"),
        claim(),
        gates=("DRADeviceTaints",),
    ),
    Behaviour.DEVICE_TAINT_RULES_HAVE_A_GATE: devices(
        ["r=d0"], CANNOT, GPU, claim(), taint_rule(), gates=("DRADeviceTaints",)
    ),
    Behaviour.DEVICE_TAINT_RULES_SELECT_BY_NAME: Case(rule_with_selectors, CANNOT, ["r=d0"]),
    Behaviour.DEVICES_ARE_TRIED_IN_COMBINATIONS: devices(
        CANNOT,
        ["r=d0", "r=d0"],
        slice_of(shared("d0", "9Gi"), node="n"),
        claim("c", asking("1Gi", 2)),
        gates=("DRAConsumableCapacity",),
    ),
    Behaviour.SUBREQUESTS_FOR_ALL_DEVICES_STAND_ALONE: devices(
        ["r/a1=d1"],
        CANNOT,
        slice_of(*indexed("d0", "d1"), node="n"),
        claim(
            "c",
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "a0", "deviceClassName": "none", "allocationMode": "All"},
                    {"name": "a1", "deviceClassName": "second", "allocationMode": "All"},
                ],
            },
        ),
        device_class("none", "false"),
        device_class("second", INDEX_1),
    ),
    Behaviour.ALL_DEVICES_ARE_RETURNED: devices(
        ["r/a1=d1", "s=d0"],
        CANNOT,
        slice_of(*indexed("d0", "d1"), node="n"),
        claim(
            "c",
            {
                "name": "r",
                "firstAvailable": [
                    {"name": "a0", "deviceClassName": "first", "allocationMode": "All"},
                    {"name": "a1", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                ],
            },
            exactly(1, INDEX_0, name="s"),
        ),
        device_class("first", INDEX_0),
        gates=("DRAPrioritizedList",),
    ),
    Behaviour.MODE_ALL_NEEDS_A_DEVICE: devices(
        CANNOT, [], slice_of(*indexed("d0"), node="n"), claim("c", exactly(0, "false"))
    ),
    Behaviour.MODE_ALL_NEEDS_ALL_DEVICES: devices(
        CANNOT,
        ["r=d1"],
        slice_of("d0", "d1", node="n"),
        claim("held", status={"allocation": allocation("d0")}),
        claim("c", exactly(0)),
    ),
    Behaviour.ADMIN_ACCESS_TAKES_DEVICES_DURING_THE_SEARCH: devices(
        CANNOT, ["r=d0", "r=d0"], GPU, claim("c", exactly(2, adminAccess=True)), gates=("DRAAdminAccess",)
    ),
    Behaviour.ADMIN_ACCESS_HAS_A_GATE: devices(
        'running "DynamicResources" filter plugin: claim default/c, request r: admin access is requested, '
        "but the feature is disabled",
        ["r=d0"],
        GPU,
        claim("c", exactly(adminAccess=True)),
    ),
    Behaviour.ADMIN_ACCESS_IS_RECORDED: Case(second_pod_after_admin_access, ["r=d0"], CANNOT),
    Behaviour.TOLERATIONS_ARE_RECORDED: Case(recorded_tolerations, 1, 0),
    Behaviour.EXTENDED_RESOURCES_ARE_SHARED_BY_CONTAINERS: Case(init_container_and_container, "n", None),
}


def shortened(observed: Any) -> Any:
    """A message without what preemption and PostFilter say."""
    if isinstance(observed, str) and observed.startswith("0/1 nodes are available: 1 cannot"):
        return CANNOT
    return observed


@pytest.mark.parametrize("behaviour", CASES, ids=lambda behaviour: behaviour.name)
def test_a_behaviour_holds_from_its_minor_version_on(behaviour: Behaviour) -> None:
    case, since = CASES[behaviour], behaviour.value.since
    assert shortened(case.observe(Minor(since))) == case.now
    assert shortened(case.observe(Minor(since - 1))) == case.before


def test_every_behaviour_of_the_plugin_has_a_case() -> None:
    assert {behaviour for behaviour in Behaviour if behaviour.value.subject == "DynamicResources"} == CASES.keys()


# -- gates ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("minor", [Minor(number) for number in (31, 32, 33)], ids=str)
def test_without_the_gate_pods_with_claims_are_scheduled_as_if_they_had_none(minor: Minor) -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "DynamicResources"}]}}}
    for found in (single_node(minor=minor), single_node(minor=minor, profile=profile)):
        assert found.decide(pod_with("missing")).node_name == "n"


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ((), ["r=d0"]),
        (("DRAConsumableCapacity",), "has capacity requests, but the DRAConsumableCapacity feature is disabled"),
        (("DRAConsumableCapacity", "DRADeviceBindingConditions"), ["r=d0"]),
    ],
)
def test_capacity_requests_are_refused_only_by_the_allocator_that_knows_them(
    gates: Sequence[str], expected: Any
) -> None:
    off = dict.fromkeys(gates, False)
    found = single_node(slice_of(shared("d0", "9Gi"), node="n"), claim("c", asking("1Gi")), gates=off)
    observed = outcome(found, pod_with("c"))
    assert observed == expected if isinstance(expected, list) else expected in observed


@pytest.mark.parametrize(
    ("off", "is_known"),
    [(("DRAConsumableCapacity",), True), (("DRAConsumableCapacity", "DRADeviceBindingConditions"), False)],
)
def test_distinct_attributes_are_known_to_the_allocator_of_either_gate(off: Sequence[str], is_known: bool) -> None:
    distinct = claim("c", constraints=[{"distinctAttribute": f"{DRIVER}/index"}])
    found = single_node(slice_of(*indexed("d0"), node="n"), distinct, gates=dict.fromkeys(off, False))
    assert (outcome(found, pod_with("c")) == ["r=d0"]) is is_known


def test_without_consumable_capacity_a_share_takes_the_whole_device() -> None:
    held = claim("held", status={"allocation": allocation("d0", shareID="s")})
    found = single_node(GPU, held, claim(), gates={"DRAConsumableCapacity": False})
    assert shortened(outcome(found, pod_with("c"))) == CANNOT


def test_without_consumable_capacity_selectors_do_not_know_whether_a_device_is_shared() -> None:
    asks = claim("c", exactly(1, "device.allowMultipleAllocations"))
    found = single_node(slice_of(shared("d0", "9Gi"), node="n"), asks, gates={"DRAConsumableCapacity": False})
    assert "CEL compile error" in outcome(found, pod_with("c"))


def test_without_prioritized_list_alternatives_do_not_count() -> None:
    gates = {"DRAPrioritizedList": False}
    used = {"allocation": allocation("d0", request="r/a0")}
    found = DeviceHarness(node("n"), node("m"), claim("c", subrequests(1), status=used), claim("d"), gates=gates)
    for name in "nm":
        found.put(slice_of("x0", node=name, pool=f"p{name}"))
    assert found.scores(pod_with("c", "d"), "DynamicResources") == {"n": 0, "m": 0}


# -- profiles ------------------------------------------------------------------------------------------------------


def test_dynamic_resources_cannot_be_enabled_at_score_before_it_has_one() -> None:
    profile = {"plugins": {"score": {"enabled": [{"name": "DynamicResources"}]}}}
    single_node(minor=Minor(35), profile=profile)
    with pytest.raises(ConfigurationError, match=r'plugin "DynamicResources" does not extend ScorePlugin plugin'):
        single_node(minor=Minor(34), profile=profile)


@pytest.mark.parametrize(("minor", "weights"), [(Minor(33), []), (Minor(34), [0]), (Minor(35), [2])], ids=str)
def test_the_weight_in_the_default_profile(minor: Minor, weights: list[int]) -> None:
    entries = default_plugins(FeatureGates(minor=minor)).multi_point.enabled
    assert [entry.weight for entry in entries if entry.name == "DynamicResources"] == weights
