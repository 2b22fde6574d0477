"""Whatever is sent, the answer is a Status and the server goes on."""

from __future__ import annotations

import pytest

from .client import PODS, Client, pod


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", PODS, b"{", 400),
        ("POST", PODS, b"", 400),
        ("POST", PODS, b"[1]", 400),
        ("POST", PODS, b"\xff\xfe", 400),
        ("POST", PODS, b'{"a":' * 100_000, 400),
        ("POST", PODS, {"kind": "Deployment", "apiVersion": "apps/v1"}, 400),
        ("POST", PODS, {"metadata": "x"}, 400),
        ("POST", PODS, {"metadata": {"name": ["x"]}}, 400),
        ("POST", PODS, {"metadata": {"name": "x"}, "spec": None}, 422),
        ("POST", f"{PODS}/p", pod(), 405),
        ("PUT", PODS, pod(), 405),
        ("GET", "/api/v1/namespaces/default/nosuch", None, 404),
        ("GET", "/api/v2/pods", None, 404),
        ("GET", "/apis/nosuch/v1/x", None, 404),
        ("GET", f"{PODS}?limit=x", None, 400),
        ("GET", f"{PODS}?watch=1&timeoutSeconds=x", None, 400),
        ("GET", f"{PODS}?watch=1&resourceVersion=x", None, 400),
        ("GET", f"{PODS}?continue=%00", None, 400),
        ("GET", f"{PODS}?labelSelector=a%20in%20b", None, 400),
        ("GET", f"{PODS}?fieldSelector=a", None, 400),
        ("POST", f"{PODS}/p/binding", {"target": "n"}, 400),
        ("POST", f"{PODS}/p/eviction", b"null", 400),
        ("DELETE", f"{PODS}/p", b"{", 400),
        ("POST", f"{PODS}?dryRun=Some", pod(), 422),
        ("BREW", PODS, None, 405),
    ],
)
async def test_nonsense_is_refused_with_a_status(
    client: Client, method: str, path: str, body: object, status: int
) -> None:
    refused = await client(method, path, body)
    assert refused.status == status, refused.content
    assert refused.json["kind"] == "Status" if refused.content_type == "application/json" else refused.status == 404
    assert (await client.get("/readyz")).content == b"ok"


@pytest.mark.parametrize(
    "kind", ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"1", b"[[]]", b'[{"op":"add"}]', b'{"spec":3}', b'{"spec":{"containers":[1]}}']
)
async def test_a_bad_patch_is_refused_with_a_status(client: Client, kind: str, body: bytes) -> None:
    await client.post(PODS, pod("p"))
    refused = await client.patch(f"{PODS}/p?fieldManager=m", body, kind)
    assert 400 <= refused.status < 500, refused.content
    assert refused.json["kind"] == "Status"


async def test_aliases_in_yaml_are_refused(client: Client) -> None:
    bomb = b"a: &a [x,x]\nb: &b [*a,*a]\nmetadata: {name: p}\n"
    refused = await client("POST", PODS, bomb, content_type="application/yaml")
    assert refused.status == 400
    assert "aliases" in refused.message


async def test_an_unknown_field_is_named_in_a_warning_or_refused(client: Client) -> None:
    warned = await client.post(PODS, pod(nodename="n"))
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.nodename\\""'
    strict = await client.post(f"{PODS}?fieldValidation=Strict", pod("q", nodename="n"))
    assert strict.status == 400
    ignored = await client.post(f"{PODS}?fieldValidation=Ignore", pod("r", nodename="n"))
    assert "Warning" not in ignored.headers


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"- " * 100_000, b"{a: " * 5000, b"? " * 5000, b"1: x", b"!!set {a}", b"@"]
)
async def test_hostile_yaml_is_refused(client: Client, body: bytes) -> None:
    refused = await client("POST", PODS, body, content_type="application/yaml")
    assert refused.status in (400, 422)
    assert refused.json["kind"] == "Status"
