"""Protobuf bodies: decoded to the same objects as JSON, or rejected with the messages of kube-apiserver."""

from __future__ import annotations

import base64
import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.recordings import exchanges
from devcluster_tests.client import NODES, PODS, Client, ClientResponse, pod
from devcluster_tests.protobuf_bodies import decoded, decoded_events, envelope, varint, wire_field
from devcluster_tests.wire.recordings import protobuf_object
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.resources.built_in import BUILT_IN_KINDS
from kubestow_devcluster.apiserver.schema.type_table import type_entry
from kubestow_devcluster.apiserver.schema.types import struct_of
from kubestow_devcluster.apiserver.serialization import protobuf
from kubestow_devcluster.apiserver.serialization.media_types import PROTOBUF

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
#: ``kubectl create deployment web --image=nginx``, as kubectl sends it.
FROM_KUBECTL = bytes.fromhex(
    "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412ab010a1f0a037765621200"
    "1a0022002a00320038004200" + "5a0a0a036170701203776562" + "127a0801120c0a0a0a036170701203776562"
    "1a600a1c0a0012001a0022002a003200380042005a0a0a0361707012037765621240"
    "12220a056e67696e7812056e67696e782a0042006a00720080010088010090010"
    "0a201001a00320042004a005200580060006800820100"
    "8a01009a0100c20100" + "22020a0028003800" + "1a0c080010001800200028003800" + "1a002200"
)


CONTAINER = wire_field(1, b"c") + wire_field(2, b"x:1")
POD = wire_field(1, wire_field(1, b"p")) + wire_field(2, wire_field(2, CONTAINER))


async def create(client: Client, path: str, body: bytes) -> ClientResponse:
    return await client("POST", path, body, content_type=PROTOBUF)


async def test_the_body_of_kubectl_creates_a_deployment(client: Client) -> None:
    response = await create(client, DEPLOYMENTS, FROM_KUBECTL)
    assert response.status == 201
    spec = response.json["spec"]
    assert (response.json["metadata"]["name"], spec["replicas"]) == ("web", 1)
    assert spec["template"]["spec"]["containers"][0]["image"] == "nginx"
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}


async def test_protobuf_and_json_create_the_same_object(client: Client) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    path, metadata = f"{DEPLOYMENTS}?dryRun=All", {"name": "web", "labels": {"app": "web"}}
    by_json = (await client.post(path, {"metadata": metadata, "spec": spec})).json
    by_protobuf = (await create(client, path, FROM_KUBECTL)).json
    assert by_json.pop("metadata")["labels"] == by_protobuf.pop("metadata")["labels"]
    assert by_json == by_protobuf


def test_a_recorded_pod_equals_the_same_pod_recorded_in_json() -> None:
    recorded = exchanges("pods-create")
    raw = next(base64.b64decode(one["respBase64"]) for one in recorded if "respBase64" in one)
    pod = struct_of("V1Pod").read(protobuf.decode(raw), [])
    bodies = [one["respBody"] for one in recorded if isinstance(one.get("respBody"), dict)]
    same = [body for body in bodies if body.get("metadata", {}).get("uid") == pod["metadata"]["uid"]]
    assert same and pod == struct_of("V1Pod").read(same[0], [])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "empty data (<empty>)"),
        (b"{}", "does not appear to be a protobuf message, expected prefix [107 56 115 0] (7b7d)"),
        (protobuf.MAGIC + b"\x0a\xff", "unrecognized (must be of type Pod): unexpected EOF (6b3873000aff)"),
        (envelope("Pod", POD[:-1]), 'Pod in version "v1" cannot be handled as a Pod: unexpected EOF'),
        (envelope("Pod", wire_field(1, 5)), "proto: wrong wireType = 0 for field Metadata"),
        (envelope("Pod", wire_field(1, wire_field(1, b"\xff"))), "proto: field Name contains invalid UTF-8"),
        (envelope("Pod", b"\x0b"), "proto: illegal wireType 3"),
        (envelope("Pod", b"\x08" + b"\xff" * 11), "proto: integer overflow"),
    ],
)
async def test_an_invalid_body_is_rejected(client: Client, body: bytes, problem: str) -> None:
    response = await create(client, "/api/v1/namespaces/default/pods", body)
    assert (response.status, response.json["reason"]) == (400, "BadRequest")
    assert problem in response.json["message"]


async def test_a_custom_resource_in_protobuf_is_an_unsupported_media_type(client: Client) -> None:
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    response = await create(client, path, envelope("PodGroup", b"", version="scheduling.volcano.sh/v1beta1"))
    assert response.status == 415
    assert response.json["message"].endswith("accepted media types include: application/json, application/yaml")


def test_kinds_of_the_same_name_differ_by_api_version() -> None:
    raw = wire_field(4, b"x")
    assert protobuf.decode(envelope("Event", raw))["message"] == "x"
    assert protobuf.decode(envelope("Event", raw, version="events.k8s.io/v1"))["reportingController"] == "x"


async def test_another_kind_than_that_of_the_path_is_rejected(client: Client) -> None:
    response = await create(client, DEPLOYMENTS, envelope("Pod", POD))
    assert response.status == 400
    assert "does not match the expected API version (apps/v1)" in response.json["message"]


async def test_fields_of_a_newer_client_are_skipped(client: Client) -> None:
    newer = POD + wire_field(999, b"new") + varint(1000 << 3 | 5) + b"1234"
    assert (await create(client, "/api/v1/namespaces/default/pods", envelope("Pod", newer))).status == 201


def test_zero_values_are_omitted_unless_the_field_is_a_pointer() -> None:
    replicas = protobuf.decode(envelope("Deployment", wire_field(2, wire_field(1, 0))))
    assert replicas["spec"] == {"replicas": 0}
    port = (
        wire_field(2, b"TCP")
        + wire_field(3, 80)
        + wire_field(4, wire_field(1, 0) + wire_field(2, 0) + wire_field(3, b""))
    )
    service = protobuf.decode(envelope("Service", wire_field(2, wire_field(1, port))))
    assert service["spec"]["ports"] == [{"protocol": "TCP", "port": 80}]


def test_bytes_negative_numbers_and_times_are_converted_to_json() -> None:
    secret = protobuf.decode(envelope("Secret", wire_field(2, wire_field(1, b"key") + wire_field(2, b"\x00\xff"))))
    assert secret["data"] == {"key": "AP8="}
    priority = protobuf.decode(envelope("PriorityClass", wire_field(2, -5)))
    assert priority["value"] == -5
    config_map = protobuf.decode(envelope("ConfigMap", wire_field(1, wire_field(8, wire_field(1, 1)))))
    assert config_map["metadata"]["creationTimestamp"] == "1970-01-01T00:00:01.000000Z"


@pytest.mark.parametrize("kind", [kind for kind in BUILT_IN_KINDS if kind.model])
def test_encoding_and_decoding_round_trip(kind: Kind) -> None:
    obj = {**_sample(kind.model), "kind": kind.name, "apiVersion": kind.api_version}
    assert protobuf.decode(protobuf.encode(obj)) == obj


def _sample(text: str) -> Any:
    """A value of a type of the type table, with every field set."""
    if text.startswith("[]"):
        return [_sample(text[2:])]
    if text.startswith("map[string]"):
        return {"key": _sample(text.removeprefix("map[string]"))}
    if text in SAMPLES:
        return SAMPLES[text]
    # A JSON schema within a schema has no further ones, nor has a template of groups within such a template.
    fields = [one for one in type_entry(text).fields if one.number and not (text in RECURSIVE and text in one.type)]
    return {field.name: _sample(field.type) for field in fields}


RECURSIVE = ("V1JSONSchemaProps", "V1beta1CompositePodGroupTemplate", "V1alpha3CompositePodGroupTemplate")


SAMPLES: dict[str, Any] = {"string": "ü", "bytes": "AP8=", "bool": True, "int32": -1, "int64": 1 << 40, "float64": 0.5}
SAMPLES |= {"any": {"a": [1]}, "Quantity": "1500m", "IntOrString": "25%"}
SAMPLES |= {"struct{}": {}, "JSONSchemaPropsOrArray": [{"type": "string"}], "JSONSchemaPropsOrBool": {"type": "string"}}
SAMPLES |= {"JSONSchemaPropsOrStringArray": ["name"]}
SAMPLES |= dict.fromkeys(("Time", "MicroTime"), "1969-12-31T23:59:59.500000Z")


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_arbitrary_bytes_are_decoded_or_rejected(tail: bytes, position: int, byte: int) -> None:
    corrupted = bytearray(FROM_KUBECTL)
    corrupted[position % len(corrupted)] = byte
    for body in (bytes(corrupted), envelope("Pod", tail), protobuf.MAGIC + tail):
        try:
            assert isinstance(protobuf.decode(body), dict)
        except (protobuf.NotProtobuf, protobuf.UnsupportedKind, protobuf.InvalidMessage) as error:
            assert str(error)


def test_every_field_of_a_served_kind_has_a_protobuf_number() -> None:
    missing: set[str] = set()
    seen: set[str] = set()
    for kind in BUILT_IN_KINDS:
        if kind.model:
            _walk(kind.model, seen, missing)
    assert not missing


def _walk(model: str, seen: set[str], missing: set[str]) -> None:
    if model in seen:
        return
    seen.add(model)
    entry = type_entry(model)
    for field in entry.fields:
        if not field.number and not (entry.api_versions and field.name in ("kind", "apiVersion")):
            missing.add(f"{model}.{field.name}")
        inner = field.type.replace("[]", "").removeprefix("map[string]")
        with contextlib.suppress(KeyError):
            type_entry(inner)
            _walk(inner, seen, missing)


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def text(number: int, value: str) -> bytes:
    return wire_field(number, value.encode())


def definition_body(schema: bytes) -> bytes:
    """A CustomResourceDefinition as the typed Go client sends it, with the encoded schema of its ``spec``."""
    names = text(1, "widgets") + text(2, "") + text(4, "Widget") + text(5, "WidgetList")
    properties = wire_field(29, text(1, "spec") + wire_field(2, schema))
    root = text(5, "object") + wire_field(10, 0) + wire_field(18, 0) + wire_field(37, 0) + properties
    version = text(1, "v1") + wire_field(2, 1) + wire_field(3, 1) + wire_field(4, wire_field(1, root))
    version += wire_field(5, wire_field(1, b"")) + wire_field(7, 0)
    spec = text(1, "example.com") + wire_field(3, names) + text(4, "Namespaced") + wire_field(7, version)
    raw = wire_field(1, text(1, "widgets.example.com")) + wire_field(2, spec + wire_field(10, 0)) + wire_field(3, b"")
    return envelope("CustomResourceDefinition", raw, version="apiextensions.k8s.io/v1")


async def test_a_definition_in_protobuf_is_created_and_returned(client: Client) -> None:
    size = b"\x49" + struct.pack("<d", 3) + text(5, "integer") + text(41, "a") + text(43, "atomic")
    tags = text(5, "array") + wire_field(24, wire_field(1, text(5, "string") + wire_field(20, wire_field(1, b'"x"'))))
    labels = text(5, "object") + wire_field(30, wire_field(1, 1) + wire_field(2, text(5, "string")))
    default = wire_field(8, wire_field(1, b'{"size":1}'))
    properties = [
        wire_field(29, text(1, name) + wire_field(2, schema))
        for name, schema in (("size", size), ("tags", tags), ("labels", labels))
    ]
    open_ = wire_field(30, wire_field(1, 0))
    body = definition_body(text(5, "object") + default + b"".join(properties) + open_)
    response = await client("POST", DEFINITIONS, body, content_type=PROTOBUF, accept=PROTOBUF)
    assert (response.status, response.content_type) == (201, PROTOBUF)
    spec = decoded(response.content)["spec"]
    schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
    assert "nullable" not in schema and "preserveUnknownFields" not in spec
    assert spec["versions"][0]["subresources"] == {"status": {}}
    assert schema["properties"]["spec"] == {
        "type": "object",
        "default": {"size": 1},
        "additionalProperties": False,
        "properties": {
            "size": {"type": "integer", "maximum": 3, "x-kubernetes-list-map-keys": ["a"]}
            | {"x-kubernetes-map-type": "atomic"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["x"]}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    stored = (await client.get(f"{DEFINITIONS}/widgets.example.com")).json
    assert stored["spec"]["versions"] == spec["versions"]
    assert (await client.get("/apis/example.com/v1/namespaces/default/widgets")).status == 200
    listed = decoded((await client.get(DEFINITIONS, accept=PROTOBUF)).content)
    assert [item["spec"] for item in listed["items"]] == [spec]


@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": True},
        {"additionalProperties": False},
        {"additionalProperties": {}},
        {"items": {"type": "string"}},
        {"dependencies": {"a": {"type": "string"}, "b": ["c"]}},
        {"default": {}, "enum": [None, 1, "x"], "minimum": -1, "multipleOf": 0.5},
    ],
)
def test_values_of_several_forms_round_trip(schema: dict[str, Any]) -> None:
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    obj = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "spec": {"versions": [version]}}
    assert protobuf.decode(protobuf.encode(obj)) == obj


async def test_objects_and_lists_are_returned_in_protobuf(client: Client) -> None:
    await client.post(PODS, pod("p"))
    for path in (f"{PODS}/p", PODS, NODES):
        response = await client.get(path, accept=f"{PROTOBUF},application/json")
        assert response.content_type == PROTOBUF
        expected = without_zero_values((await client.get(path)).json)
        assert without_zero_values(protobuf_object(response.content)) == expected


async def test_the_response_of_a_write_is_in_protobuf(client: Client) -> None:
    body = envelope("Node", wire_field(1, wire_field(1, b"n")))
    response = await client("POST", NODES, body, content_type=PROTOBUF, accept=PROTOBUF)
    assert (response.status, decoded(response.content)["metadata"]["name"]) == (201, "n")
    response = await client("DELETE", f"{NODES}/n", None, accept=PROTOBUF)
    assert (response.status, decoded(response.content)["status"]) == (200, "Success")


async def test_errors_are_in_protobuf(client: Client) -> None:
    response = await client.get(f"{PODS}/none", accept=PROTOBUF)
    status = decoded(response.content)
    assert (response.status, response.content_type) == (404, PROTOBUF)
    assert (status["kind"], status["reason"], status["details"]["name"]) == ("Status", "NotFound", "none")


async def test_metadata_is_returned_in_protobuf_and_a_table_in_json(client: Client) -> None:
    await client.post(PODS, pod("p"))
    accept = f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    partial = decoded((await client.get(f"{PODS}/p", accept=accept)).content)
    assert (partial["kind"], partial["metadata"]["name"]) == ("PartialObjectMetadata", "p")
    accept = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    assert [one["metadata"]["name"] for one in decoded((await client.get(PODS, accept=accept)).content)["items"]] == [
        "p"
    ]
    table = "as=Table;g=meta.k8s.io;v=v1"
    response = await client.get(PODS, accept=f"{PROTOBUF};{table},application/json;{table}")
    assert (response.content_type, response.json["kind"]) == ("application/json", "Table")


async def test_a_custom_resource_is_json_or_not_acceptable(client: Client) -> None:
    path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    assert (await client.get(path, accept=f"{PROTOBUF},application/json")).content_type == "application/json"
    assert (await client.get(path, accept=PROTOBUF)).status == 406


async def test_a_watch_is_a_stream_of_frames_in_protobuf(client: Client) -> None:
    await client.post(PODS, pod("p"))
    query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    stream = await client.server.api.handle(client.request("GET", f"{PODS}?{query}", accept=PROTOBUF))
    assert stream.stream is not None
    assert stream.content_type == f"{PROTOBUF};stream=watch"
    added, bookmark = decoded_events(await anext(stream.stream) + await anext(stream.stream))
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "p")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def without_zero_values(value: Any) -> Any:
    """An object without null, zero and empty values: protobuf writes more of them than JSON."""
    if isinstance(value, dict):
        kept = {key: without_zero_values(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item}
    return [without_zero_values(item) for item in value] if isinstance(value, list) else value
