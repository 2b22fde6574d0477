"""Whatever is sent, the answer is a Status and the server goes on."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from kubestow.devcluster.cluster import DevCluster
from tests.devcluster.client import PODS, Client, pod


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
        ("OPTIONS", "*", None, 404),
        ("TRACE", "/", None, 405),
        ("POST", "/api", b"{}", 405),
        ("GET", f"{PODS}?limit=1_0", None, 400),
        ("GET", f"{PODS}?limit={'9' * 5000}", None, 400),
        ("GET", f"{PODS}?resourceVersion={2**64}", None, 400),
        ("GET", f"{PODS}?resourceVersion={'9' * 5000}", None, 400),
        ("GET", f"{PODS}?watch=1&timeoutSeconds={2**63}", None, 400),
        ("GET", f"{PODS}?watch=1&sendInitialEvents=true", None, 422),
        ("GET", f"{PODS}?watch=1&resourceVersionMatch=Exact", None, 422),
        ("DELETE", f"{PODS}/p?gracePeriodSeconds=soon", None, 400),
        ("POST", f"{PODS}?fieldValidation=Maybe", pod(), 422),
        ("POST", f"{PODS}?fieldManager=a%0Ab", pod(), 422),
        ("POST", f"{PODS}?fieldManager={'x' * 129}", pod(), 422),
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


@pytest.mark.parametrize(
    "directive",
    [
        {"spec": {"$setElementOrder/containers": 3}},
        {"spec": {"$setElementOrder/containers": [[1], {"name": []}]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": 3}},
        {"spec": {"$retainKeys": 3}},
        {"spec": {"$patch": "burn"}},
        {"spec": {"containers": [{"$patch": "delete", "name": [1]}]}},
        {"spec": {"containers": [{"name": {"a": 1}}, {"name": [1]}]}},
        {"metadata": {"finalizers": [{"a": "b"}, []]}},
    ],
)
async def test_a_strategic_patch_with_strange_directives_does_no_harm(client: Client, directive: object) -> None:
    await client.post(PODS, pod("p"))
    await client.patch(f"{PODS}/p", {"metadata": {"finalizers": ["a.b/c"]}})
    assert (await client.patch(f"{PODS}/p", directive, "strategic-merge-patch+json")).status in (200, 400, 422)


async def test_copies_of_copies_end_before_they_fill_the_memory(client: Client) -> None:
    await client.post(PODS, pod("p"))
    doubling = [{"op": "copy", "from": "/spec/new", "path": "/spec/new/-"}] * 60
    refused = await client.patch(
        f"{PODS}/p", [{"op": "add", "path": "/spec/new", "value": ["x"]}, *doubling], "json-patch+json"
    )
    assert refused.status == 413 and "the accumulated size increase of copy is" in refused.message


async def test_a_long_body_in_yaml_is_refused_unless_it_is_json(client: Client) -> None:
    ballast = {"metadata": {"name": "c"}, "data": {"x": "y" * 1_500_000}}
    path = "/api/v1/namespaces/default/configmaps"
    body = msgspec.json.encode(ballast)
    assert (await client("POST", path, body, content_type="application/yaml")).status == 201
    refused = await client("POST", path, b"---\n" + body, content_type="application/yaml")
    assert (refused.status, refused.message) == (413, "Request entity too large: limit is 1048576")


async def test_of_very_many_mistakes_the_first_are_told(client: Client) -> None:
    nameless = pod("p")
    nameless["spec"]["containers"] = [{}] * 5000
    assert len((await client.post(PODS, nameless)).json["details"]["causes"]) == 1000


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


async def test_a_field_given_twice_is_refused_by_who_is_strict(client: Client) -> None:
    twice = b'{"metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","image":"x","image":"y"}]}}'
    assert (await client.post(PODS, twice)).json["metadata"]["name"] == "b"
    refused = await client.post(f"{PODS}?fieldValidation=Strict", twice)
    problem = 'duplicate field "metadata.name", duplicate field "spec.containers[0].image"'
    assert refused.status == 400 and refused.message.endswith(f"strict decoding error: {problem}")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"- " * 100_000, b"{a: " * 5000, b"? " * 5000, b"1: x", b"!!set {a}", b"@"]
)
async def test_hostile_yaml_is_refused(client: Client, body: bytes) -> None:
    refused = await client("POST", PODS, body, content_type="application/yaml")
    assert refused.status in (400, 422)
    assert refused.json["kind"] == "Status"


async def test_anything_but_no_is_a_yes_to_a_question_of_the_query(client: Client) -> None:
    await client.post(PODS, pod("p"))
    for said in ("", "=", "=maybe", "=TRUE"):
        assert (await anext(client.watch(f"{PODS}?watch{said}&timeoutSeconds=1")))["type"] == "ADDED"
    for said in ("=0", "=False"):
        assert (await client.get(f"{PODS}?watch{said}")).json["kind"] == "PodList"


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET /healthz HTTP/3.0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X%d: a\r\n" % n for n in range(5000)) + b"\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_in_silence(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with DevCluster(kubelets=False) as server:
        assert (await exchanged(server, sent)).split()[1] == b"400"
        assert b" 200 OK" in await exchanged(server, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"User-Agent: \xff\xfe/1", 201),
        (b"Authorization: Bearer \xff", 201),
        (b"Impersonate-User: \xff", 400),
        (b"Content-Type: \xff", 415),
        (b"Accept: \xff", 406),
        (b"Content-Encoding: gzip", 201),
    ],
)
async def test_a_header_that_is_no_text_does_no_harm(header: bytes, status: int) -> None:
    body = msgspec.json.encode(pod())
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n" % (PODS.encode(), len(body))
    async with DevCluster(kubelets=False) as server:
        answer = await exchanged(server, head + header + b"\r\n\r\n" + body)
    assert int(answer.split()[1]) == status


async def exchanged(server: DevCluster, sent: bytes) -> bytes:
    """All that comes back on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.apiserver.port)
    writer.write(sent)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def test_each_fault_of_a_name_is_a_cause_of_its_own(client: Client) -> None:
    refused = (await client.post(PODS, pod(name="a", labels={"A/" + "b" * 64: "ok"}))).json
    prefix, length = refused["details"]["causes"]
    assert prefix["field"] == length["field"] == "metadata.labels"
    assert ": prefix part a lowercase RFC 1123 subdomain" in prefix["message"]
    assert length["message"].endswith(": name part must be no more than 63 bytes")


async def test_an_apply_patch_without_metadata_is_about_the_object_of_the_url(client: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None, "data": {"a": "b"}}
    applied = await client.patch("/api/v1/namespaces/default/configmaps/c?fieldManager=m", body, "apply-patch+yaml")
    assert (applied.status, applied.json["metadata"]["name"]) == (201, "c")
