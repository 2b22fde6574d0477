"""Objects of former versions, and their way to the hub version and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.conversion import DEVICES, POD_GROUPS, conversion_of
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim, ResourceSlice
from kubestow.api.scheduling import PodGroup

_SELECTORS = [{"cel": {"expression": "true"}}]
_EXACT = {"deviceClassName": "gpu", "selectors": _SELECTORS, "allocationMode": "ExactCount", "count": 2}
_ATTRIBUTES = {"model": {"string": "a"}, "index": {"int": 3}}

names = st.text("abc", min_size=1, max_size=3)
exact_requests = st.fixed_dictionaries(
    {"deviceClassName": names},
    optional={
        "selectors": st.just(_SELECTORS),
        "allocationMode": st.sampled_from(["ExactCount", "All"]),
        "count": st.integers(1, 9),
        "adminAccess": st.booleans(),
        "tolerations": st.just([{"operator": "Exists"}]),
        "capacity": st.just({"requests": {"memory": "1Gi"}}),
    },
)
requests = st.one_of(
    st.fixed_dictionaries({"name": names, "exactly": exact_requests}),
    st.fixed_dictionaries({"name": names, "firstAvailable": st.lists(exact_requests, min_size=1, max_size=2)}),
)
claim_specs: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"devices": st.fixed_dictionaries({"requests": st.lists(requests, max_size=3)}, optional={"config": st.just([])})}
)
claims = st.fixed_dictionaries(
    {"apiVersion": st.just("resource.k8s.io/v1"), "kind": st.just("ResourceClaim"), "spec": claim_specs},
    optional={"status": st.just({"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]})},
)
templates = st.fixed_dictionaries(
    {"kind": st.just("ResourceClaimTemplate"), "spec": st.fixed_dictionaries({"spec": claim_specs})}
)
devices = st.fixed_dictionaries(
    {"name": names},
    optional={
        "attributes": st.just(_ATTRIBUTES),
        "capacity": st.dictionaries(names, st.just({"value": "4Gi"}), min_size=1, max_size=2),
        "nodeName": names,
        "taints": st.just([{"key": "k", "effect": "NoSchedule"}]),
    },
)
slices = st.fixed_dictionaries(
    {
        "kind": st.just("ResourceSlice"),
        "spec": st.fixed_dictionaries({"driver": names, "devices": st.lists(devices, max_size=3)}),
    }
)
patches = st.sampled_from([{"metadata": {"uid": "u"}, "status": {"allocation": None}}, {"metadata": {}}, {}])
leaves: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=2))
_DEVICE_FIELDS = ("spec", "devices", "requests", "exactly", "basic", "capacity", "name")
_GROUP_FIELDS = ("disruptionMode", "podGroupTemplates", "podGroupTemplateRef", "workloadRef", "workload")
hostile = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from([*_DEVICE_FIELDS, *_GROUP_FIELDS]), inner, max_size=4),
    ),
)


@given(st.one_of(claims, templates, slices, patches), st.sampled_from(DEVICES.former))
def test_an_object_comes_back_from_every_version_as_it_was(obj: dict[str, Any], version: str) -> None:
    assert DEVICES.to_hub(version, DEVICES.from_hub(version, obj)) == obj


@given(st.dictionaries(st.sampled_from(["spec", "status"]), hostile), st.sampled_from(DEVICES.former))
def test_what_has_another_type_is_left_to_the_decoder(obj: dict[str, Any], version: str) -> None:
    DEVICES.to_hub(version, obj)
    DEVICES.from_hub(version, obj)


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_the_fields_of_a_request_are_those_of_exactly(version: str) -> None:
    manifest = {
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", **_EXACT}, {"name": "s", "firstAvailable": [_EXACT]}]}},
    }
    hub = DEVICES.to_hub(version, manifest)
    assert hub["apiVersion"] == "resource.k8s.io/v1"
    first, second = convert(ResourceClaim, hub).spec.devices.requests
    assert first.exactly is not None
    assert (first.exactly.device_class_name, first.exactly.count, second.exactly) == ("gpu", 2, None)


@pytest.mark.parametrize(
    ("version", "capacity"), [("v1alpha3", {"memory": "8Gi"}), ("v1beta1", {"memory": {"value": "8Gi"}})]
)
def test_the_fields_of_a_device_are_in_basic(version: str, capacity: dict[str, Any]) -> None:
    manifest = {"spec": {"devices": [{"name": "d", "basic": {"attributes": _ATTRIBUTES, "capacity": capacity}}]}}
    (device,) = convert(ResourceSlice, DEVICES.to_hub(version, manifest)).spec.devices
    assert (device.attributes["model"].string_value, device.capacity["memory"].value) == ("a", "8Gi")
    assert DEVICES.from_hub(version, DEVICES.to_hub(version, manifest)) == manifest


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_a_request_of_a_template_is_converted_like_that_of_a_claim(version: str) -> None:
    former = {"devices": {"requests": [{"name": "r", **_EXACT}]}}
    hub = {"devices": {"requests": [{"name": "r", "exactly": _EXACT}]}}
    assert DEVICES.to_hub(version, {"spec": {"spec": former}}) == {"spec": {"spec": hub}}
    assert DEVICES.from_hub(version, {"spec": {"spec": hub}}) == {"spec": {"spec": former}}
    assert DEVICES.from_hub(version, {"spec": hub}) == {"spec": former}


@pytest.mark.parametrize(
    ("device", "converted"),
    [({"name": "d"}, {"name": "d"}), ({"name": "d", "basic": None}, {"name": "d"})]
    + [(one, one) for one in ({"name": "d", "basic": 7}, 7, None)],
)
def test_a_device_without_fields_has_none_in_v1(device: Any, converted: Any) -> None:
    assert DEVICES.to_hub("v1beta1", {"spec": {"devices": [device]}}) == {"spec": {"devices": [converted]}}


@pytest.mark.parametrize("version", DEVICES.former)
@pytest.mark.parametrize("spec", [{"devices": [7, None]}, {"devices": {"requests": [7, None]}}, {"devices": 7}])
def test_requests_and_devices_of_another_type_stay_as_they_are(version: str, spec: dict[str, Any]) -> None:
    assert DEVICES.to_hub(version, {"spec": spec}) == DEVICES.from_hub(version, {"spec": spec}) == {"spec": spec}


def test_v1beta2_has_the_fields_of_v1() -> None:
    spec = {"devices": {"requests": [{"name": "r", "exactly": _EXACT}]}}
    assert DEVICES.to_hub("v1beta2", {"apiVersion": "resource.k8s.io/v1beta2", "spec": spec}) == {
        "apiVersion": "resource.k8s.io/v1",
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("resource.k8s.io/v1beta1", "ResourceClaim", True),
        ("resource.k8s.io/v1", "ResourceClaim", False),
        ("resource.k8s.io/v1alpha3", "DeviceTaintRule", True),
        ("resource.k8s.io/v1alpha2", "ResourceClaim", False),
        ("v1beta1", "ResourceClaim", False),
        ("scheduling.k8s.io/v1alpha2", "PodGroup", True),
        ("scheduling.k8s.io/v1alpha3", "Workload", True),
        ("scheduling.k8s.io/v1beta1", "PodGroup", False),
        ("scheduling.k8s.io/v1alpha3", "CompositePodGroup", False),
        ("scheduling.volcano.sh/v1alpha2", "PodGroup", False),
    ],
)
def test_types_that_are_converted(api_version: str, kind: str, expected: bool) -> None:
    assert (conversion_of(api_version, kind) is not None) is expected


_TEMPLATE = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": "PodGroup"}
_FORMER_GROUPS = [
    {"spec": {"disruptionMode": "PodGroup", "podGroupTemplateRef": {"workload": {"workloadName": "w"}}}},
    {"spec": {"disruptionMode": "Pod", "schedulingPolicy": {"basic": {}}, "priority": 3}},
    {"spec": {"podGroupTemplates": [_TEMPLATE, {"name": "u"}]}},
    {"status": {"conditions": []}},
]


@pytest.mark.parametrize("obj", _FORMER_GROUPS)
@pytest.mark.parametrize("version", POD_GROUPS.former)
def test_a_group_comes_back_from_the_hub_version_as_it_was(obj: dict[str, Any], version: str) -> None:
    assert POD_GROUPS.from_hub(version, POD_GROUPS.to_hub(version, obj)) == obj


def test_the_disruption_modes_of_v1alpha2_are_single_and_all() -> None:
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    spec = {"disruptionMode": "PodGroup", "podGroupTemplateRef": reference}
    hub = POD_GROUPS.to_hub("v1alpha2", {"apiVersion": "scheduling.k8s.io/v1alpha2", "spec": spec})
    assert hub == {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "spec": {"disruptionMode": {"all": {}}, "workloadRef": {"workloadName": "w", "templateName": "t"}},
    }
    assert convert(PodGroup, hub).spec.is_disrupted_as_a_whole
    single = POD_GROUPS.to_hub("v1alpha2", {"spec": {"disruptionMode": "Pod"}})
    assert not convert(PodGroup, single).spec.is_disrupted_as_a_whole


@pytest.mark.parametrize("mode", ["Other", "single", {"all": {}}, 7, None])
def test_a_disruption_mode_that_v1alpha2_does_not_have_stays_as_it_is(mode: Any) -> None:
    group = {"spec": {"disruptionMode": mode}}
    assert POD_GROUPS.to_hub("v1alpha2", group) == group


def test_the_templates_of_a_workload_are_converted() -> None:
    hub = POD_GROUPS.to_hub("v1alpha2", {"spec": {"podGroupTemplates": [_TEMPLATE]}})
    assert hub["spec"]["podGroupTemplates"] == [_TEMPLATE | {"disruptionMode": {"all": {}}}]


@given(st.dictionaries(st.sampled_from(["spec", "status"]), hostile), st.sampled_from(POD_GROUPS.former))
def test_groups_with_other_types_are_left_to_the_decoder(obj: dict[str, Any], version: str) -> None:
    POD_GROUPS.to_hub(version, obj)
    POD_GROUPS.from_hub(version, obj)
