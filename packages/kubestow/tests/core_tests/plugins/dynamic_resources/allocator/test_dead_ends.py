"""What a search learns from its dead ends changes neither which devices it finds nor how it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.plugins.dynamic_resources.devices import DeviceHarness, single_node
from kubestow.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from kubestow.plugins.dynamic_resources import dead_ends, requests, search
from kubestow.plugins.dynamic_resources.cel import SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.pools import DevicePools, PublishedSlices
from kubestow.plugins.dynamic_resources.requests import AllocationError, AllocationTimeout, Features, resolve_claim
from kubestow.plugins.dynamic_resources.search import AllocationSearch, AvailableCounters
from kubestow.testing.devices import DRIVER, allocation, claim, device, exactly, slice_of, subrequests

FEATURES = Features()
#: Of 200,000 that a search has by default.
MAX_STEPS = 5_000
TAINT = {"key": "sick", "value": "very", "effect": "NoSchedule"}
Object = Mapping[str, Any]


class ExhaustiveSearch(AllocationSearch):
    """The search as it is specified, which learns nothing from dead ends."""

    def _new_dead_ends(self) -> None:  # type: ignore[override]
        pass


def outcome(kind: type[AllocationSearch], harness: DeviceHarness, claims: Sequence[ResourceClaim]) -> tuple[Any, int]:
    """What a search returns or raises, and how many of its steps are left."""
    slices = PublishedSlices(harness.cluster.catalog(ResourceSlice), partitionable_devices=True)
    tracker = harness.cluster.resource_claims
    devices = DevicePools(slices, harness.cluster.nodes).by_node().devices[0]
    made = kind(
        devices.candidates,
        tracker,
        AvailableCounters(tracker),
        selectors=SelectorCache(),
        features=FEATURES,
        max_steps=MAX_STEPS,
    )
    classes = harness.cluster.catalog(DeviceClass)
    try:
        resolved = [resolve_claim(each, devices, classes, features=FEATURES, matches=made.matches) for each in claims]
        found = made.run(resolved)
    except (AllocationError, SelectorError) as error:
        return (type(error), str(error)), made._steps_left or 0
    if found is None:
        return None, made._steps_left or 0
    results = [[(r.request.result_name, r.device.id.device, r.consumed_capacity) for r in each] for each in found]
    return results, made._steps_left or 0


SELECTORS = [
    "true",
    "false",
    *(f'device.attributes["{DRIVER}"].index % {n} == {r}' for n, r in ((2, 0), (2, 1), (3, 0), (3, 2))),
    *(f'device.attributes["{DRIVER}"].index < {n}' for n in (2, 3, 5)),
    f'device.attributes["{DRIVER}"].group == 1',  # an error for devices without a group
]
selections = st.fixed_dictionaries(
    {
        "deviceClassName": st.just("gpu"),
        "selectors": st.sampled_from(SELECTORS).map(lambda s: [{"cel": {"expression": s}}]),
    }
).flatmap(
    lambda fields: st.sampled_from([1, 1, 1, 2, 2, 3, 4, 0]).map(
        lambda count: (
            fields | ({"allocationMode": "ExactCount", "count": count} if count else {"allocationMode": "All"})
        )
    )
)


@st.composite
def devices(draw: st.DrawFn, *, special: bool) -> list[Object]:
    found = []
    for number in range(draw(st.integers(1, 7))):
        attributes: dict[str, Any] = {"index": number}
        if draw(st.integers(0, 9)):
            attributes["group"] = draw(st.integers(0, 2))
        fields: dict[str, Any] = {}
        if special:
            match draw(st.integers(0, 6)):
                case 0:
                    fields["taints"] = [TAINT]
                case 1 | 2:
                    fields |= {"capacity": {"memory": {"value": "4"}}, "allowMultipleAllocations": True}
                case 3:
                    fields["capacity"] = {"memory": {"value": draw(st.sampled_from(["1", "4"]))}}
            if draw(st.booleans()):
                counters = {"memory": {"value": draw(st.sampled_from(["1", "2", "3"]))}}
                fields["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
        found.append(device(f"d{number}", attributes=attributes, **fields))
    return found


@st.composite
def claims(draw: st.DrawFn, *, special: bool) -> list[ResourceClaim]:
    found = []
    for number in range(draw(st.integers(1, 2))):
        wanted: list[Object] = []
        names: list[str] = []
        for position in range(draw(st.integers(1, 4))):
            name = f"r{position}"
            names.append(name)
            selection = dict(draw(selections))
            if special and not draw(st.integers(0, 3)):
                selection["tolerations"] = [{"operator": "Exists"}]
            if special and not draw(st.integers(0, 3)):
                selection["capacity"] = {"requests": {"memory": draw(st.sampled_from(["1", "2", "3"]))}}
            if not draw(st.integers(0, 3)):
                others = draw(st.lists(selections, min_size=1, max_size=2))
                subs = [each | {"name": f"s{n}"} for n, each in enumerate([selection, *others])]
                wanted.append({"name": name, "firstAvailable": subs})
                continue
            if special and not draw(st.integers(0, 5)):
                selection["adminAccess"] = True
            wanted.append({"name": name, "exactly": selection})
        constraints: list[Object] = [
            {
                draw(st.sampled_from(["matchAttribute", "distinctAttribute"])): f"{DRIVER}/{attribute}",
                "requests": draw(st.lists(st.sampled_from(names), unique=True)),
            }
            for attribute in draw(st.lists(st.sampled_from(["group", "group", "index"]), max_size=2))
        ]
        found.append(claim(f"c{number}", *wanted, constraints=constraints))
    return found


def test_a_device_that_a_later_request_for_all_needs_is_not_taken_for_another_that_none_needs() -> None:
    harness = single_node(slice_of(*(device(f"d{n}", attributes={"index": n}) for n in range(3)), node="n"))
    low = f'device.attributes["{DRIVER}"].index < 2'
    wanted = [claim("c", exactly(1, name="any"), exactly(0, low, name="all"))]
    found, _ = outcome(AllocationSearch, harness, wanted)
    assert found == outcome(ExhaustiveSearch, harness, wanted)[0]
    assert [(name, device_name) for name, device_name, _ in found[0]] == [("any", "d2"), ("all", "d0"), ("all", "d1")]


@settings(max_examples=100, deadline=None)
@given(st.data(), st.booleans(), st.sampled_from([4, 6, 32]))
def test_the_search_finds_what_an_exhaustive_search_finds(data: st.DataObject, special: bool, limit: int) -> None:
    counters = [{"name": "card", "counters": {"memory": {"value": "5"}}}]
    card = slice_of(node="n", name="n-card", of=2, sharedCounters=counters)
    published = slice_of(*data.draw(devices(special=special)), node="n", of=2)
    taken = claim("taken", status={"allocation": allocation(*data.draw(st.sampled_from([(), ("d0",), ("d2",)])))})
    harness = single_node(published, card, taken)
    incoming = data.draw(claims(special=special))
    with ExitStack() as stack:
        for module in (requests, search, dead_ends):
            stack.enter_context(patch.object(module, "MAX_DEVICES_PER_CLAIM", limit))
        expected, exhaustive = outcome(ExhaustiveSearch, harness, incoming)
        found, left = outcome(AllocationSearch, harness, incoming)
    if not (isinstance(expected, tuple) and expected[0] is AllocationTimeout):
        assert found == expected
    assert left >= exhaustive


# -- claims of a tenant that have no solution ------------------------------------------------------------------------

GROUP, INDEX = f"{DRIVER}/group", f"{DRIVER}/index"


def grouped(count: int, groups: int, **fields: Any) -> list[Object]:
    return [device(f"d{i}", attributes={"index": i, "group": i % groups}, **fields) for i in range(count)]


def singles(count: int, *selectors: str, prefix: str = "r") -> list[Object]:
    return [exactly(1, *selectors, name=f"{prefix}{number}") for number in range(count)]


PARTITIONED = {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": "1Mi"}}}]}
SHARED = {"capacity": {"memory": {"value": "4"}}, "allowMultipleAllocations": True}
LATE = f'device.attributes["{DRIVER}"].index > 25'
TOGETHER: Object = {"matchAttribute": GROUP}
APART: Object = {"distinctAttribute": INDEX}
UNSOLVABLE: Mapping[str, tuple[list[Object], ResourceClaim]] = {
    "more devices than there are": (grouped(31, 2), claim("c", exactly(32))),
    "a request for each device and one more": (grouped(16, 2), claim("c", *singles(17))),
    "more devices than any group has": (grouped(40, 2), claim("c", exactly(21), constraints=[TOGETHER])),
    "more requests than any group has devices": (grouped(40, 2), claim("c", *singles(21), constraints=[TOGETHER])),
    "devices that are all different": (grouped(40, 2), claim("c", *singles(21), constraints=[TOGETHER, APART])),
    "more different groups than there are": (
        grouped(128, 19),
        claim("c", *singles(20), constraints=[{"distinctAttribute": GROUP}]),
    ),
    "pairs of each group": (
        grouped(24, 5),
        claim(
            "c",
            *(exactly(2, name=f"r{n}") for n in range(11)),
            constraints=[{"matchAttribute": GROUP, "requests": [f"r{n}"]} for n in range(11)],
        ),
    ),
    "the last request matches nothing": (grouped(32, 2), claim("c", exactly(16), exactly(1, "false", name="none"))),
    "all devices of none": (grouped(32, 2), claim("c", exactly(16), exactly(0, "false", name="none"))),
    "many requests for few devices": (grouped(32, 2), claim("c", *singles(16), *singles(8, LATE, prefix="late"))),
    "many subrequests": (grouped(16, 2), claim("c", *(subrequests(1, 1, 1, name=f"r{n}") for n in range(17)))),
    "shared devices": (grouped(40, 2, **SHARED), claim("c", exactly(21), constraints=[TOGETHER])),
    "partitions": (grouped(32, 2, **PARTITIONED), claim("c", exactly(16), exactly(1, "false", name="none"))),
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_a_claim_without_a_solution_is_rejected_in_few_steps(name: str) -> None:
    devices, unsolvable = UNSOLVABLE[name]
    counters = [{"name": "card", "counters": {"memory": {"value": "1Gi"}}}]
    card = slice_of(node="n", name="n-card", of=2, sharedCounters=counters)
    harness = single_node(slice_of(*devices, node="n", of=2), card)
    found, steps_left = outcome(AllocationSearch, harness, [unsolvable])
    assert found is None and steps_left > 0
