"""Bodies in protobuf: what kubectl sends is read as the JSON it stands for; what is not protobuf is refused."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.devcluster.apiserver.resources import KINDS, Kind
from kubestow.devcluster.apiserver.schema import struct_of
from kubestow.devcluster.apiserver.schema.table import entry
from kubestow.devcluster.apiserver.serialization import protobuf
from tests.devcluster.client import Client, Response
from tests.devcluster.wire import folder

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


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def piece(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def enveloped(kind: str, raw: bytes, *, version: str = "v1") -> bytes:
    types = piece(1, version.encode()) + piece(2, kind.encode())
    return protobuf.MAGIC + piece(1, types) + piece(2, raw)


CONTAINER = piece(1, b"c") + piece(2, b"x:1")
POD = piece(1, piece(1, b"p")) + piece(2, piece(2, CONTAINER))


async def create(client: Client, path: str, body: bytes) -> Response:
    return await client("POST", path, body, content_type=protobuf.MEDIA_TYPE)


async def test_what_kubectl_sends_creates_a_deployment(client: Client) -> None:
    response = await create(client, DEPLOYMENTS, FROM_KUBECTL)
    assert response.status == 201
    spec = response.json["spec"]
    assert (response.json["metadata"]["name"], spec["replicas"]) == ("web", 1)
    assert spec["template"]["spec"]["containers"][0]["image"] == "nginx"
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": "25%", "maxUnavailable": "25%"}


async def test_protobuf_and_json_make_the_same_object(client: Client) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    path, metadata = f"{DEPLOYMENTS}?dryRun=All", {"name": "web", "labels": {"app": "web"}}
    by_json = (await client.post(path, {"metadata": metadata, "spec": spec})).json
    by_protobuf = (await create(client, path, FROM_KUBECTL)).json
    assert by_json.pop("metadata")["labels"] == by_protobuf.pop("metadata")["labels"]
    assert by_json == by_protobuf


@pytest.mark.skipif(folder() is None, reason="the recordings (../shared/wire) are not there")
def test_a_recorded_pod_reads_as_the_same_pod_recorded_in_json() -> None:
    recordings = folder()
    assert recordings is not None
    exchanges = [json.loads(line) for line in (recordings / "pods-create.jsonl").read_text().splitlines()]
    raw = next(base64.b64decode(one["respBase64"]) for one in exchanges if "respBase64" in one)
    pod = struct_of("V1Pod").read(protobuf.decode(raw), [])
    bodies = [one["respBody"] for one in exchanges if isinstance(one.get("respBody"), dict)]
    same = [body for body in bodies if body.get("metadata", {}).get("uid") == pod["metadata"]["uid"]]
    assert same and pod == struct_of("V1Pod").read(same[0], [])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty data (<empty>)"),
        (b"{}", "does not appear to be a protobuf message, expected prefix [107 56 115 0] (7b7d)"),
        (protobuf.MAGIC + b"\x0a\xff", "unrecognized (must be of type Pod): unexpected EOF (6b3873000aff)"),
        (enveloped("Pod", POD[:-1]), 'Pod in version "v1" cannot be handled as a Pod: unexpected EOF'),
        (enveloped("Pod", piece(1, 5)), "proto: wrong wireType = 0 for field Metadata"),
        (enveloped("Pod", piece(1, piece(1, b"\xff"))), "proto: field Name contains invalid UTF-8"),
        (enveloped("Pod", b"\x0b"), "proto: illegal wireType 3"),
        (enveloped("Pod", b"\x08" + b"\xff" * 11), "proto: integer overflow"),
    ],
)
async def test_what_is_no_object_is_refused(client: Client, body: bytes, said: str) -> None:
    response = await create(client, "/api/v1/namespaces/default/pods", body)
    assert (response.status, response.json["reason"]) == (400, "BadRequest")
    assert said in response.json["message"]


async def test_a_kind_that_is_only_read_from_json_is_an_unsupported_media_type(client: Client) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    response = await create(client, definitions, enveloped("CustomResourceDefinition", b""))
    assert response.status == 415
    assert response.json["message"].endswith("accepted media types include: application/json, application/yaml")


def test_kinds_of_one_name_are_told_apart_by_their_api_version() -> None:
    raw = piece(4, b"x")
    assert protobuf.decode(enveloped("Event", raw))["message"] == "x"
    assert protobuf.decode(enveloped("Event", raw, version="events.k8s.io/v1"))["reportingController"] == "x"


async def test_another_kind_than_the_path_names_is_refused(client: Client) -> None:
    response = await create(client, DEPLOYMENTS, enveloped("Pod", POD))
    assert response.status == 400
    assert "does not match the expected API version (apps/v1)" in response.json["message"]


async def test_fields_of_a_newer_client_are_skipped(client: Client) -> None:
    newer = POD + piece(999, b"news") + varint(1000 << 3 | 5) + b"1234"
    assert (await create(client, "/api/v1/namespaces/default/pods", enveloped("Pod", newer))).status == 201


def test_zeros_that_say_nothing_and_zeros_that_do() -> None:
    replicas = protobuf.decode(enveloped("Deployment", piece(2, piece(1, 0))))
    assert replicas["spec"] == {"replicas": 0}
    port = piece(2, b"TCP") + piece(3, 80) + piece(4, piece(1, 0) + piece(2, 0) + piece(3, b""))
    service = protobuf.decode(enveloped("Service", piece(2, piece(1, port))))
    assert service["spec"]["ports"] == [{"protocol": "TCP", "port": 80}]


def test_secrets_negative_numbers_and_times_are_written_as_in_json() -> None:
    secret = protobuf.decode(enveloped("Secret", piece(2, piece(1, b"key") + piece(2, b"\x00\xff"))))
    assert secret["data"] == {"key": "AP8="}
    priority = protobuf.decode(enveloped("PriorityClass", piece(2, -5)))
    assert priority["value"] == -5
    made = protobuf.decode(enveloped("ConfigMap", piece(1, piece(8, piece(1, 1)))))
    assert made["metadata"]["creationTimestamp"] == "1970-01-01T00:00:01.000000Z"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.model and kind.name != "CustomResourceDefinition"])
def test_what_is_encoded_is_decoded_as_it_was(kind: Kind) -> None:
    whole = {**_filled(kind.model), "kind": kind.name, "apiVersion": kind.api_version}
    assert protobuf.decode(protobuf.encode(whole)) == whole


def _filled(text: str) -> Any:
    """A value of a type in the table's notation, with every field set."""
    if text.startswith("[]"):
        return [_filled(text[2:])]
    if text.startswith("map[string]"):
        return {"key": _filled(text.removeprefix("map[string]"))}
    if text in SAMPLES:
        return SAMPLES[text]
    return {field.name: _filled(field.type) for field in entry(text).fields if field.number}


SAMPLES: dict[str, Any] = {"string": "ü", "bytes": "AP8=", "bool": True, "int32": -1, "int64": 1 << 40, "float64": 0.5}
SAMPLES |= {"any": {"a": [1]}, "Quantity": "1500m", "IntOrString": "25%"}
SAMPLES |= dict.fromkeys(("Time", "MicroTime"), "1969-12-31T23:59:59.500000Z")


@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_any_bytes_are_an_object_or_refused(tail: bytes, place: int, byte: int) -> None:
    broken = bytearray(FROM_KUBECTL)
    broken[place % len(broken)] = byte
    for body in (bytes(broken), enveloped("Pod", tail), protobuf.MAGIC + tail):
        try:
            assert isinstance(protobuf.decode(body), dict)
        except (protobuf.NotProtobuf, protobuf.Unserved, protobuf.Malformed) as refusal:
            assert str(refusal)


def test_every_field_of_a_served_kind_has_a_number() -> None:
    missing: set[str] = set()
    seen: set[str] = set()
    for kind in KINDS:
        # Definitions of custom resources are sent in JSON: kubectl has no Go types of them.
        if kind.model and kind.name != "CustomResourceDefinition":
            _walk(kind.model, seen, missing)
    assert not missing


def _walk(model: str, seen: set[str], missing: set[str]) -> None:
    if model in seen:
        return
    seen.add(model)
    described = entry(model)
    for field in described.fields:
        if not field.number and not (described.api_versions and field.name in ("kind", "apiVersion")):
            missing.add(f"{model}.{field.name}")
        inner = field.type.replace("[]", "").removeprefix("map[string]")
        with contextlib.suppress(KeyError):
            entry(inner)
            _walk(inner, seen, missing)
