"""The schemas agree with the models of the Kubernetes client, and reading by them gives canonical values."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kubernetes_asyncio.client import models

from core_tests.recordings import openapi_schemas
from devcluster_tests.client import Client
from kubestow.api.formats.canonical_quantity import canonical
from kubestow.errors import InvalidQuantity
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow_devcluster.apiserver.resources.built_in import BUILT_IN_KINDS
from kubestow_devcluster.apiserver.resources.minor_versions import kinds_of_minor
from kubestow_devcluster.apiserver.schema.type_table import model_names, type_entry
from kubestow_devcluster.apiserver.schema.types import ListMerge, ListOf, UnmarshalTypeError, struct_of

#: Type in the table -> type in the models.
MODEL_TYPES = {"string": "str", "bytes": "str", "int32": "int", "int64": "int", "float64": "float", "any": "object"}
MODEL_TYPES |= {"Quantity": "str", "IntOrString": "object", "Time": "datetime", "MicroTime": "datetime"}
MODEL_TYPES |= dict.fromkeys(("struct{}", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool"), "object")
MODEL_TYPES |= {"JSONSchemaPropsOrStringArray": "object"}


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
        if name == "V1PodSpec":
            expected["workloadRef"] = "V1WorkloadReference"  # of 1.35
        assert {field.name: model_type(field.type) for field in type_entry(name).fields} == expected


def test_the_type_table_has_every_served_kind_with_its_api_version() -> None:
    for kind in BUILT_IN_KINDS:
        if kind.model:
            entry = type_entry(kind.model)
            assert (entry.name, entry.api_versions) == (kind.name, (kind.api_version,))


def test_lists_merge_as_their_published_schema_says() -> None:
    """The type table has the extensions of the published schema; what the server does follows from ListMerge."""
    for model in model_names():
        fields = struct_of(model).fields
        for entry in type_entry(model).fields:
            field, strategies = fields[entry.name], set(filter(None, entry.patch_strategy.split(",")))
            if not isinstance(field.type_, ListOf):
                assert field.patch_strategy == entry.patch_strategy
                continue
            merge = field.merge or ListMerge()
            list_type = "set" if merge.is_set else "map" if merge.map_keys else "atomic"
            assert list_type == (entry.list_type or "atomic"), f"{model}.{entry.name}"
            assert merge.map_keys == entry.list_map_keys
            assert merge.patch_key == entry.patch_merge_key
            assert merge.patch_by_value == ("merge" in strategies and not entry.patch_merge_key)
            assert merge.retain_keys == ("retainKeys" in strategies)


EXTENSIONS = ("list-type", "list-map-keys", "patch-merge-key", "patch-strategy", "map-type")


def merge_rules(schema: dict[str, Any]) -> dict[str, Any]:
    """The Kubernetes extensions of a field that say how patches merge it."""
    found = {name: schema[f"x-kubernetes-{name}"] for name in EXTENSIONS if f"x-kubernetes-{name}" in schema}
    if found.get("list-type") == "atomic":  # the default
        del found["list-type"]
    if "additionalProperties" in schema and found.get("map-type") == "granular":  # the default
        del found["map-type"]
    return found


def type_text(schema: dict[str, Any]) -> str:
    """The type of a field as `kubectl explain` shows it: map[string]Quantity."""
    if "allOf" in schema:
        [schema] = schema["allOf"]
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition(".")[2]
    if "items" in schema:
        return f"[]{type_text(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map[string]{type_text(schema['additionalProperties'])}"
    return str(schema["type"])


async def test_the_served_openapi_has_the_merge_rules_and_types_of_kube_apiserver(client: Client) -> None:
    compared = 0
    for path, recorded in openapi_schemas().items():
        served = await client.get(f"/openapi/v3/{path}")
        if served.status == 404:
            continue
        schemas = served.json["components"]["schemas"]
        for name in sorted(schemas.keys() & recorded.keys()):
            assert merge_rules(schemas[name]) == merge_rules(recorded[name]), name
            for field, schema in recorded[name].get("properties", {}).items():
                ours = schemas[name]["properties"].get(field, {})
                assert merge_rules(ours) == merge_rules(schema), f"{name}.{field}"
                if ours:
                    assert type_text(ours) == type_text(schema), f"{name}.{field}"
                compared += 1
    assert compared > 1000


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


async def test_openapi_v2_has_the_schemas_of_all_kinds_in_one_document(client: Client) -> None:
    document = (await client.get("/openapi/v2")).json
    definitions = document["definitions"]
    assert document["swagger"] == "2.0"
    for kind in kinds_of_minor(DEFAULT_MINOR)[0]:
        if kind.model:
            assert "properties" in definitions[kind.struct.definition]
    spec = definitions["io.k8s.api.core.v1.Pod"]["properties"]["spec"]
    assert spec["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    text = json.dumps(document)
    assert "oneOf" not in text
    assert all(name in definitions for name in re.findall(r'"#/definitions/([^"]+)"', text))
