"""Objects of the former versions of resource.k8s.io, and their way to v1 and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.api.conversion import FORMER_VERSIONS, from_hub, is_former, to_hub
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim, ResourceSlice

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
hostile = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["spec", "devices", "requests", "exactly", "basic", "capacity", "name"]), inner, max_size=4
        ),
    ),
)


@given(st.one_of(claims, templates, slices, patches), st.sampled_from(FORMER_VERSIONS))
def test_an_object_comes_back_from_every_version_as_it_was(obj: dict[str, Any], version: str) -> None:
    assert to_hub(version, from_hub(version, obj)) == obj


@given(st.dictionaries(st.sampled_from(["spec", "status"]), hostile), st.sampled_from(FORMER_VERSIONS))
def test_what_has_another_type_is_left_to_the_decoder(obj: dict[str, Any], version: str) -> None:
    to_hub(version, obj)
    from_hub(version, obj)


@pytest.mark.parametrize("version", ["v1alpha3", "v1beta1"])
def test_the_fields_of_a_request_are_those_of_exactly(version: str) -> None:
    manifest = {
        "apiVersion": f"resource.k8s.io/{version}",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", **_EXACT}, {"name": "s", "firstAvailable": [_EXACT]}]}},
    }
    hub = to_hub(version, manifest)
    assert hub["apiVersion"] == "resource.k8s.io/v1"
    first, second = convert(ResourceClaim, hub).spec.devices.requests
    assert first.exactly is not None
    assert (first.exactly.device_class_name, first.exactly.count, second.exactly) == ("gpu", 2, None)


@pytest.mark.parametrize(
    ("version", "capacity"), [("v1alpha3", {"memory": "8Gi"}), ("v1beta1", {"memory": {"value": "8Gi"}})]
)
def test_the_fields_of_a_device_are_in_basic(version: str, capacity: dict[str, Any]) -> None:
    manifest = {"spec": {"devices": [{"name": "d", "basic": {"attributes": _ATTRIBUTES, "capacity": capacity}}]}}
    (device,) = convert(ResourceSlice, to_hub(version, manifest)).spec.devices
    assert (device.attributes["model"].string_value, device.capacity["memory"].value) == ("a", "8Gi")
    assert from_hub(version, to_hub(version, manifest)) == manifest


def test_v1beta2_has_the_fields_of_v1() -> None:
    spec = {"devices": {"requests": [{"name": "r", "exactly": _EXACT}]}}
    assert to_hub("v1beta2", {"apiVersion": "resource.k8s.io/v1beta2", "spec": spec}) == {
        "apiVersion": "resource.k8s.io/v1",
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("resource.k8s.io/v1beta1", "ResourceClaim", True),
        ("resource.k8s.io/v1", "ResourceClaim", False),
        ("resource.k8s.io/v1alpha3", "DeviceTaintRule", False),
        ("resource.k8s.io/v1alpha2", "ResourceClaim", False),
        ("v1beta1", "ResourceClaim", False),
    ],
)
def test_types_that_are_converted(api_version: str, kind: str, expected: bool) -> None:
    assert is_former(api_version, kind) is expected
