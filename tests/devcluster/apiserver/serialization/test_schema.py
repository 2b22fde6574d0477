"""The schemas agree with the models of the Kubernetes client, and reading by them gives canonical values."""

from __future__ import annotations

import pytest
from kubernetes_asyncio.client import models

from kubestow.devcluster.apiserver.resources import BUILT_IN_KINDS
from kubestow.devcluster.apiserver.schema import UnmarshalTypeError, struct_of
from kubestow.devcluster.apiserver.schema.quantities import canonical
from kubestow.devcluster.apiserver.schema.type_table import type_entry
from kubestow.errors import InvalidQuantity

#: Type in the table -> type in the models.
MODEL_TYPES = {"string": "str", "bytes": "str", "int32": "int", "int64": "int", "float64": "float", "any": "object"}
MODEL_TYPES |= {"Quantity": "str", "IntOrString": "object", "Time": "datetime", "MicroTime": "datetime"}


def reachable() -> set[str]:
    """The models of the served kinds and of all their fields."""
    found: set[str] = set()

    def visit(text: str) -> None:
        model = text.replace("[]", "").removeprefix("map[string]")
        if model and hasattr(models, model) and model not in found:
            found.add(model)
            for field in type_entry(model).fields:
                visit(field.type)

    for kind in BUILT_IN_KINDS:
        visit(kind.model)
    return found


def model_type(text: str) -> str:
    if text.startswith("[]"):
        return f"list[{model_type(text[2:])}]"
    if text.startswith("map[string]"):
        return f"dict(str, {model_type(text.removeprefix('map[string]'))})"
    return MODEL_TYPES.get(text, text)


def test_the_type_table_has_the_fields_of_the_models() -> None:
    for name in reachable():
        model = getattr(models, name)
        expected = {model.attribute_map[python]: type_ for python, type_ in model.openapi_types.items()}
        assert {field.name: model_type(field.type) for field in type_entry(name).fields} == expected


def test_the_type_table_has_every_served_kind_with_its_api_version() -> None:
    for kind in BUILT_IN_KINDS:
        if kind.model:
            entry = type_entry(kind.model)
            assert (entry.name, entry.api_versions) == (kind.name, (kind.api_version,))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.1", "100m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("1000", "1k"),
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("512", "512"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12e6", "12e6"),
        ("2E", "2E"),
        ("-1", "-1"),
        ("0", "0"),
        ("1n", "1n"),
    ],
)
def test_quantities_have_a_canonical_form(text: str, expected: str) -> None:
    assert canonical(text) == expected
    assert canonical(expected) == expected


def test_an_invalid_quantity_is_rejected_with_the_message_of_kube_apiserver() -> None:
    with pytest.raises(InvalidQuantity, match="quantities must match the regular expression"):
        canonical("1.5.2")


def test_zero_values_are_omitted_unless_they_have_a_meaning() -> None:
    read = struct_of("V1Pod").read(
        {"spec": {"nodeName": "", "hostNetwork": False, "tolerations": [], "containers": None}}, []
    )
    assert read["spec"] == {}
    claim = struct_of("V1PersistentVolumeClaim").read({"spec": {"storageClassName": ""}}, [])
    assert claim["spec"]["storageClassName"] == "", "an empty class differs from the default class"


def test_times_are_in_utc_with_second_or_microsecond_precision() -> None:
    lease = struct_of("V1Lease").read({"spec": {"renewTime": "2026-01-01T01:00:00.5+01:00"}}, [])
    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:00.500000Z"
    pod = struct_of("V1Pod").read({"status": {"startTime": "2026-01-01T00:00:00.9Z"}}, [])
    assert pod["status"]["startTime"] == "2026-01-01T00:00:00Z"
    with pytest.raises(UnmarshalTypeError):
        struct_of("V1Pod").read({"status": {"startTime": "0001-01-01T00:00:00+14:00"}}, [])
