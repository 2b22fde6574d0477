"""Custom resources: served with their definition, defaulted, pruned and validated by its schema, deleted with it."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import Client, ClientResponse

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION = f"{DEFINITIONS}/trains.rail.example.com"
TRAINS = "/apis/rail.example.com/v1/namespaces/default/trains"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["line"],
    "properties": {
        "line": {"type": "string", "pattern": "^[A-Z][0-9]+$"},
        "cars": {"type": "integer", "minimum": 1, "maximum": 12, "default": 4},
        "mode": {"type": "string", "enum": ["slow", "fast"]},
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "size": {"x-kubernetes-int-or-string": True},
        "stops": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    },
}
OPEN_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def version(name: str = "v1", *, storage: bool = True, spec: Any = None, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": spec or SPEC, "status": OPEN_OBJECT}}
    return {"name": name, "served": True, "storage": storage, "schema": {"openAPIV3Schema": schema}, **more}


def definition(*versions: dict[str, Any], **more: Any) -> dict[str, Any]:
    names = {"plural": "trains", "kind": "Train", "shortNames": ["tr"], **more}
    spec = {"group": "rail.example.com", "scope": "Namespaced", "names": names, "versions": versions or (version(),)}
    return {"metadata": {"name": f"{names['plural']}.rail.example.com"}, "spec": spec}


def train(name: str = "t", **spec: Any) -> dict[str, Any]:
    head = {"apiVersion": "rail.example.com/v1", "kind": "Train", "metadata": {"name": name}}
    return {**head, "spec": {"line": "S1", **spec}}


async def define(client: Client, *versions: dict[str, Any]) -> ClientResponse:
    created = await client.post(DEFINITIONS, definition(*versions))
    assert created.status == 201, created.content
    return created


async def test_a_definition_is_established_when_it_is_created(client: Client) -> None:
    status = (await define(client)).json["status"]
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert status["acceptedNames"]["listKind"] == "TrainList"
    assert status["storedVersions"] == ["v1"]


async def test_instances_get_the_defaults_of_the_schema(client: Client) -> None:
    await define(client)
    created = await client.post(TRAINS, train(extra={"a": {"b": 1}}, size="10m"))
    assert created.status == 201
    assert created.json["spec"] == {"line": "S1", "extra": {"a": {"b": 1}}, "size": "10m", "cars": 4}
    assert (await client.get(TRAINS)).json["kind"] == "TrainList"


async def test_unknown_fields_are_pruned_with_a_warning(client: Client) -> None:
    await define(client)
    created = await client.post(TRAINS, train(colour="red", stops=[{"name": "a", "track": 1}]))
    assert created.json["spec"] == {"line": "S1", "cars": 4, "stops": [{"name": "a"}]}
    assert (
        created.headers["Warning"]
        == '299 - "unknown field \\"spec.colour\\"", 299 - "unknown field \\"spec.stops[0].track\\""'
    )
    rejected = await client.post(f"{TRAINS}?fieldValidation=Strict", train("u", colour="red"))
    assert rejected.status == 400 and 'unknown field "spec.colour"' in rejected.message


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"cars": "many"}, 'spec.cars: Invalid value: "string": spec.cars in body must be of type integer: "string"'),
        ({"cars": 0}, "spec.cars: Invalid value: 0: spec.cars in body should be greater than or equal to 1"),
        ({"cars": 13}, "spec.cars: Invalid value: 13: spec.cars in body should be less than or equal to 12"),
        ({"line": "x"}, "spec.line: Invalid value: \"x\": spec.line in body should match '^[A-Z][0-9]+$'"),
        ({"mode": "late"}, 'spec.mode: Unsupported value: "late": supported values: "slow", "fast"'),
        (
            {"size": 1.5},
            'spec.size: Invalid value: "number": spec.size in body must be of type integer,string: "number"',
        ),
        ({"stops": [{}] * 4}, "spec.stops: Too many: 4: must have at most 3 items"),
        ({"stops": [{"name": 1}]}, "spec.stops[0].name in body must be of type string"),
    ],
)
async def test_instances_are_validated_by_the_schema(client: Client, spec: dict[str, Any], problem: str) -> None:
    await define(client)
    rejected = await client.post(TRAINS, train(**spec))
    assert rejected.status == 422 and problem in rejected.message
    assert rejected.message.startswith('Train.rail.example.com "t" is invalid: ')


async def test_a_required_field_cannot_be_missing(client: Client) -> None:
    await define(client)
    rejected = await client.post(TRAINS, {**train(), "spec": {}})
    assert "spec.line: Required value" in rejected.message


async def test_discovery_and_openapi_list_a_kind_until_its_definition_is_deleted(client: Client) -> None:
    before = (await client.get("/openapi/v3")).json["paths"]
    await define(client)
    (resource,) = (await client.get("/apis/rail.example.com/v1")).json["resources"]
    assert (resource["name"], resource["kind"], resource["shortNames"]) == ("trains", "Train", ["tr"])
    url = (await client.get("/openapi/v3")).json["paths"]["apis/rail.example.com/v1"]["serverRelativeURL"]
    schema = (await client.get(url)).json["components"]["schemas"]["com.example.rail.v1.Train"]
    assert schema["properties"]["spec"] == SPEC
    await client.delete(DEFINITION)
    assert (await client.get("/apis/rail.example.com/v1")).status == 404
    assert (await client.get("/openapi/v3")).json["paths"] == before


async def test_a_changed_schema_applies_to_the_next_write(client: Client) -> None:
    await define(client)
    changed = [version(spec={**SPEC, "properties": {**SPEC["properties"], "colour": {"type": "string"}}})]
    assert (await client.patch(DEFINITION, {"spec": {"versions": changed}})).status == 200
    assert (await client.post(TRAINS, train(colour="red"))).json["spec"]["colour"] == "red"


async def test_all_versions_serve_the_same_objects(client: Client) -> None:
    old = version("v1beta1", storage=False, spec=OPEN_OBJECT, deprecated=True, deprecationWarning="use v1")
    await define(client, version(), old)
    await client.post(TRAINS, train())
    converted = await client.get(f"{TRAINS.replace('/v1/', '/v1beta1/')}/t")
    assert converted.json["apiVersion"] == "rail.example.com/v1beta1"
    assert converted.json["spec"]["line"] == "S1"
    assert converted.headers["Warning"] == '299 - "use v1"'
    group = (await client.get("/apis/rail.example.com")).json
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]


async def test_the_status_subresource_writes_only_the_status(client: Client) -> None:
    await define(client, version(subresources={"status": {}}))
    created = await client.post(TRAINS, {**train(), "status": {"running": 1}})
    assert "status" not in created.json
    patched = await client.patch(f"{TRAINS}/t/status", {"status": {"running": 3}, "spec": {"line": "S2"}})
    assert (patched.json["status"], patched.json["spec"]["line"]) == ({"running": 3}, "S1")
    assert patched.json["metadata"]["generation"] == 1
    assert (await client.patch(f"{TRAINS}/t", {"spec": {"cars": 2}})).json["metadata"]["generation"] == 2


async def test_without_the_subresource_status_is_an_ordinary_field(client: Client) -> None:
    await define(client)
    created = await client.post(TRAINS, {**train(), "status": {"running": 1}})
    assert created.json["status"] == {"running": 1}
    assert (await client.get(f"{TRAINS}/t/status")).status == 404


async def test_scale_uses_the_paths_of_the_definition(client: Client) -> None:
    paths = {
        "specReplicasPath": ".spec.cars",
        "statusReplicasPath": ".status.running",
        "labelSelectorPath": ".status.sel",
    }
    await define(client, version(subresources={"status": {}, "scale": paths}))
    await client.post(TRAINS, train())
    await client.patch(f"{TRAINS}/t/status", {"status": {"running": 2, "sel": "a=b"}})
    for kind in ("strategic-merge-patch+json", "json"):
        assert (await client.patch(f"{TRAINS}/t/scale", {"spec": {"replicas": 9}}, kind)).status == 415
    scaled = await client.patch(f"{TRAINS}/t/scale", {"spec": {"replicas": 7}})
    assert (scaled.json["spec"], scaled.json["status"]) == ({"replicas": 7}, {"replicas": 2, "selector": "a=b"})
    assert (await client.get(f"{TRAINS}/t")).json["spec"]["cars"] == 7


async def test_tables_have_the_additional_printer_columns(client: Client) -> None:
    columns = [
        {"name": "Cars", "type": "integer", "jsonPath": ".spec.cars"},
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "First", "type": "string", "jsonPath": ".spec.stops[0].name"},
        {"name": "Note", "type": "string", "jsonPath": r".metadata.annotations.example\.com/note", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    await define(client, version(additionalPrinterColumns=columns))
    new = train(stops=[{"name": "Bern"}])
    new["metadata"]["annotations"] = {"example.com/note": "late"}
    new["status"] = {"conditions": [{"type": "Other", "status": "No"}, {"type": "Ready", "status": "True"}]}
    await client.post(TRAINS, new)
    table = (await client.get(TRAINS, accept=TABLE)).json
    assert [(one["name"], one["priority"]) for one in table["columnDefinitions"]][4] == ("Note", 1)
    assert table["rows"][0]["cells"] == ["t", 4, "True", "Bern", "late", "0s"]


async def test_applied_lists_merge_by_the_map_keys_of_the_schema(client: Client) -> None:
    await define(client)
    for manager, stop in (("one", "Bern"), ("two", "Thun")):
        applied = await client.patch(
            f"{TRAINS}/t?fieldManager={manager}", train(stops=[{"name": stop}]), "apply-patch+yaml"
        )
        assert applied.status in (200, 201), applied.content
    assert [stop["name"] for stop in applied.json["spec"]["stops"]] == ["Bern", "Thun"]


async def test_deleting_a_definition_deletes_its_instances(client: Client) -> None:
    await define(client)
    await client.post(TRAINS, train())
    assert (await client.delete(DEFINITION)).status == 200
    assert (await client.get(DEFINITION)).status == 404
    await define(client)
    assert (await client.get(TRAINS)).json["items"] == []


async def test_a_definition_is_terminating_while_instances_have_finalizers(client: Client) -> None:
    await define(client)
    instance = train()
    instance["metadata"]["finalizers"] = ["example.com/wait"]
    await client.post(TRAINS, instance)
    await client.delete(DEFINITION)
    conditions = (await client.get(DEFINITION)).json["status"]["conditions"]
    assert conditions[-1]["type"] == "Terminating"
    await client.patch(f"{TRAINS}/t", {"metadata": {"finalizers": None}})
    assert (await client.get(DEFINITION)).status == 404


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"metadata": {"name": "other"}}, 'must be spec.names.plural+"."+spec.group'),
        ({"spec": {"scope": "Both"}}, 'spec.scope: Unsupported value: "Both"'),
        ({"spec": {"versions": [version(storage=False)]}}, "must have exactly one version marked as storage version"),
        ({"spec": {"versions": [{"name": "v1", "served": True, "storage": True}]}}, "schemas are required"),
        ({"spec": {"group": "rail.k8s.io"}}, "protected groups must have approval annotation"),
    ],
)
async def test_invalid_definitions_are_rejected(client: Client, change: Any, problem: str) -> None:
    new = definition()
    for part, fields in change.items():
        new[part] |= fields
    rejected = await client.post(DEFINITIONS, new)
    assert rejected.status == 422 and problem in rejected.message


async def test_names_of_another_kind_are_not_accepted(client: Client) -> None:
    await define(client)
    second = await client.post(DEFINITIONS, definition(plural="locos", singular="loco", shortNames=["lo"]))
    accepted, established = second.json["status"]["conditions"]
    assert (accepted["status"], accepted["reason"]) == ("False", "KindConflict")
    assert established["status"] == "False"
    assert (await client.get(TRAINS.replace("trains", "locos"))).status == 404


async def test_a_pattern_with_exponentially_many_ways_to_match_takes_linear_time(client: Client) -> None:
    line = {"type": "string", "pattern": "^(a+)+$"}
    await define(client, version(spec={"type": "object", "properties": {"line": line}}))
    rejected = await client.post(TRAINS, train(line="a" * 100_000 + "b"))
    assert rejected.status == 422
    assert "should match '^(a+)+$'" in rejected.json["message"]
    assert (await client.post(TRAINS, train(line="a" * 100_000))).status == 201


async def test_a_definition_with_an_invalid_pattern_is_rejected(client: Client) -> None:
    spec = {"type": "object", "properties": {"line": {"type": "string", "pattern": "(?=a)"}}}
    rejected = await client.post(DEFINITIONS, definition(version(spec=spec)))
    assert rejected.status == 422
    (cause,) = rejected.json["details"]["causes"]
    assert cause["field"] == "spec.validation.openAPIV3Schema.properties[spec].properties[line].pattern"
    assert "must be a valid regular expression, but isn't" in cause["message"]


async def test_a_default_that_is_added_later_applies_to_existing_instances(client: Client) -> None:
    await define(client)
    await client.post(TRAINS, train())
    changed = {**SPEC, "properties": {**SPEC["properties"], "mode": {"type": "string", "default": "slow"}}}
    versions = {"spec": {"versions": [version(spec=changed)]}}
    assert (await client.patch(DEFINITION, versions)).status == 200
    assert (await client.get(f"{TRAINS}/t")).json["spec"]["mode"] == "slow"
    assert [one["spec"]["mode"] for one in (await client.get(TRAINS)).json["items"]] == ["slow"]
    invalid = (await client.post(TRAINS, train("u", line="x"))).message
    assert invalid.startswith('Train.rail.example.com "u" is invalid')


async def test_a_condition_that_a_user_sets_in_the_status_of_a_definition_is_kept(client: Client) -> None:
    status = (await define(client)).json["status"]
    mine = {
        "type": "Mine",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    changed = {"status": {"conditions": [*status["conditions"], mine]}}
    assert (await client.patch(f"{DEFINITION}/status", changed)).status == 200
    assert (await client.get(DEFINITION)).json["status"]["conditions"] == changed["status"]["conditions"]


async def test_discovery_has_the_storage_version_hash_of_a_custom_resource(client: Client) -> None:
    await define(client)
    trains = (await client.get("/apis/rail.example.com/v1")).json["resources"][0]
    assert (trains["name"], len(trains["storageVersionHash"])) == ("trains", 12)


async def test_the_fields_of_a_nested_schema_are_those_of_a_schema(client: Client) -> None:
    path = f"{DEFINITIONS}?fieldValidation=Strict"
    unknown = {"type": "array", "items": {"type": "string", "maxLen": 3}}
    rejected = await client.post(path, definition(version(spec=unknown)))
    assert rejected.status == 400
    where = "spec.versions[0].schema.openAPIV3Schema.properties.spec.items.maxLen"
    assert f'unknown field "{where}"' in rejected.json["message"]
    rejected = await client.post(path, definition(version(spec={"type": "object", "additionalProperties": "x"})))
    assert (rejected.status, "boolean or JSON schema expected" in rejected.json["message"]) == (400, True)


async def test_openapi_v2_describes_objects_with_any_fields_as_objects(client: Client) -> None:
    one = version()
    one["schema"] = {"openAPIV3Schema": OPEN_OBJECT}
    await define(client, one)
    published = (await client.get("/openapi/v2")).json["definitions"]["com.example.rail.v1.Train"]
    assert published["type"] == "object" and "x-kubernetes-preserve-unknown-fields" not in published
    (v3,) = [
        schema
        for name, schema in (await client.get("/openapi/v3/apis/rail.example.com/v1"))
        .json["components"]["schemas"]
        .items()
        if name.endswith(".Train")
    ]
    assert v3["x-kubernetes-preserve-unknown-fields"] is True
