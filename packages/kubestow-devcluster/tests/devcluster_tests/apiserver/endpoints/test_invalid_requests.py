"""Invalid and hostile requests get a Status, and the server keeps serving."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import NODES, PODS, Client, node, pod
from kubestow_devcluster.cluster import DevCluster


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
        ("POST", f"{PODS}/p/eviction", {"metadata": "p"}, 400),
        ("POST", f"{PODS}/p/eviction", {"deleteOptions": ["p"]}, 400),
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
async def test_an_invalid_request_is_rejected_with_a_status(
    client: Client, method: str, path: str, body: object, status: int
) -> None:
    rejected = await client(method, path, body)
    assert rejected.status == status, rejected.content
    assert rejected.json["kind"] == "Status" if rejected.content_type == "application/json" else rejected.status == 404
    assert (await client.get("/readyz")).content == b"ok"


@pytest.mark.parametrize(
    "kind", ["json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
)
@pytest.mark.parametrize(
    "body", [b"", b"{", b"1", b"[[]]", b'[{"op":"add"}]', b'{"spec":3}', b'{"spec":{"containers":[1]}}']
)
async def test_an_invalid_patch_is_rejected_with_a_status(client: Client, kind: str, body: bytes) -> None:
    await client.post(PODS, pod("p"))
    rejected = await client.patch(f"{PODS}/p?fieldManager=m", body, kind)
    assert 400 <= rejected.status < 500, rejected.content
    assert rejected.json["kind"] == "Status"


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
async def test_invalid_directives_of_a_strategic_merge_patch_do_not_fail(client: Client, directive: object) -> None:
    await client.post(PODS, pod("p"))
    await client.patch(f"{PODS}/p", {"metadata": {"finalizers": ["a.b/c"]}})
    assert (await client.patch(f"{PODS}/p", directive, "strategic-merge-patch+json")).status in (200, 400, 422)


async def test_the_copies_of_a_json_patch_are_limited(client: Client) -> None:
    await client.post(PODS, pod("p"))
    doubling = [{"op": "copy", "from": "/spec/new", "path": "/spec/new/-"}] * 60
    rejected = await client.patch(
        f"{PODS}/p", [{"op": "add", "path": "/spec/new", "value": ["x"]}, *doubling], "json-patch+json"
    )
    assert rejected.status == 413 and "the accumulated size increase of copy is" in rejected.message


async def test_a_long_yaml_body_is_rejected_unless_it_is_json(client: Client) -> None:
    ballast = {"metadata": {"name": "c"}, "data": {"x": "y" * 1_500_000}}
    path = "/api/v1/namespaces/default/configmaps"
    body = msgspec.json.encode(ballast)
    assert (await client("POST", path, body, content_type="application/yaml")).status == 201
    rejected = await client("POST", path, b"---\n" + body, content_type="application/yaml")
    assert (rejected.status, rejected.message) == (413, "Request entity too large: limit is 1048576")


async def test_a_status_has_at_most_a_thousand_causes(client: Client) -> None:
    nameless = pod("p")
    nameless["spec"]["containers"] = [{}] * 5000
    assert len((await client.post(PODS, nameless)).json["details"]["causes"]) == 1000


async def test_yaml_aliases_are_expanded_within_limits(client: Client) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    aliases = b"metadata: {name: c, labels: &a {x: y}, annotations: *a}\n"
    created = await client("POST", path, aliases, content_type="application/yaml")
    assert created.json["metadata"]["annotations"] == {"x": "y"}
    bomb = b"a0: &a0 [x,x]\n" + b"".join(b"a%d: &a%d [*a%d,*a%d]\n" % (n, n, n - 1, n - 1) for n in range(1, 30))
    rejected = await client("POST", PODS, bomb, content_type="application/yaml")
    assert rejected.status == 400
    assert "aliases stand for more than 1,048,576 characters" in rejected.message


@pytest.mark.parametrize("part", [b"? ", b"- ", b"[", b"{a: ", b"- ? ", b"? ["])
async def test_deep_yaml_is_rejected(client: Client, part: bytes) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    for types in ("application/yaml", "application/apply-patch+yaml"):
        rejected = await client("POST", path, part * 100_000, content_type=types)
        assert rejected.status == 400 and "nested more than 200 levels deep" in rejected.message


async def test_an_unknown_field_is_a_warning_or_an_error(client: Client) -> None:
    warned = await client.post(PODS, pod(nodename="n"))
    assert warned.headers["Warning"] == '299 - "unknown field \\"spec.nodename\\""'
    strict = await client.post(f"{PODS}?fieldValidation=Strict", pod("q", nodename="n"))
    assert strict.status == 400
    ignored = await client.post(f"{PODS}?fieldValidation=Ignore", pod("r", nodename="n"))
    assert "Warning" not in ignored.headers


async def test_strict_validation_rejects_duplicate_fields(client: Client) -> None:
    duplicates = b'{"metadata":{"name":"a","name":"b"},"spec":{"containers":[{"name":"c","image":"x","image":"y"}]}}'
    assert (await client.post(PODS, duplicates)).json["metadata"]["name"] == "b"
    rejected = await client.post(f"{PODS}?fieldValidation=Strict", duplicates)
    problem = 'duplicate field "metadata.name", duplicate field "spec.containers[0].image"'
    assert rejected.status == 400 and rejected.message.endswith(f"strict decoding error: {problem}")


@pytest.mark.parametrize(
    "body", [b"[" * 100_000, b"- " * 100_000, b"{a: " * 5000, b"? " * 5000, b"1: x", b"!!set {a}", b"@"]
)
async def test_hostile_yaml_is_rejected(client: Client, body: bytes) -> None:
    rejected = await client("POST", PODS, body, content_type="application/yaml")
    assert rejected.status in (400, 422)
    assert rejected.json["kind"] == "Status"


async def test_any_value_but_0_and_false_is_true(client: Client) -> None:
    await client.post(PODS, pod("p"))
    for value in ("", "=", "=maybe", "=TRUE"):
        assert (await anext(client.watch(f"{PODS}?watch{value}&timeoutSeconds=1")))["type"] == "ADDED"
    for value in ("=0", "=False"):
        assert (await client.get(f"{PODS}?watch{value}")).json["kind"] == "PodList"


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
async def test_invalid_http_gets_400_and_is_not_logged(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with DevCluster(kubelets=False) as server:
        assert (await exchange(server, sent)).split()[1] == b"400"
        assert b" 200 OK" in await exchange(server, b"GET /healthz HTTP/1.0\r\n\r\n")
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
async def test_headers_that_are_not_utf_8_are_accepted_or_rejected(header: bytes, status: int) -> None:
    body = msgspec.json.encode(pod())
    start = b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" % PODS.encode()
    head = start + b"Content-Length: %d\r\n" % len(body)
    async with DevCluster(kubelets=False) as server:
        response = await exchange(server, head + header + b"\r\n\r\n" + body)
    assert int(response.split()[1]) == status


async def exchange(server: DevCluster, sent: bytes) -> bytes:
    """Everything that the server sends on a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.apiserver.port)
    writer.write(sent)
    async with asyncio.timeout(HANG_LIMIT):
        received = await reader.read()
    writer.close()
    return received


async def test_each_fault_of_a_name_is_a_separate_cause(client: Client) -> None:
    rejected = (await client.post(PODS, pod(name="a", labels={"A/" + "b" * 64: "ok"}))).json
    prefix, length = rejected["details"]["causes"]
    assert prefix["field"] == length["field"] == "metadata.labels"
    assert ": prefix part a lowercase RFC 1123 subdomain" in prefix["message"]
    assert length["message"].endswith(": name part must be no more than 63 bytes")


async def test_an_apply_patch_without_metadata_gets_the_name_of_the_path(client: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": None, "data": {"a": "b"}}
    applied = await client.patch("/api/v1/namespaces/default/configmaps/c?fieldManager=m", body, "apply-patch+yaml")
    assert (applied.status, applied.json["metadata"]["name"]) == (201, "c")


SECRETS = "/api/v1/namespaces/default/secrets"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize("path", [SECRETS, CONFIG_MAPS])
@pytest.mark.parametrize(("key", "problem"), [("", "a valid config key must"), ("..", "must not be '..'")])
async def test_invalid_keys_of_secrets_and_config_maps_are_rejected(
    client: Client, path: str, key: str, problem: str
) -> None:
    response = await client.post(path, {"metadata": {"name": "s"}, "data": {key: "dg=="}})
    assert response.status == 422
    assert f'data[{key}]: Invalid value: "{key}": {problem}' in response.message


async def test_invalid_sysctls_are_rejected(client: Client) -> None:
    new = pod("p")
    sysctls = [{"name": name, "value": "1"} for name in ("kernel.shm/x", "", "foo-", "a b", "kernel.shm/x")]
    new["spec"]["securityContext"] = {"sysctls": sysctls}
    response = await client.post(PODS, new)
    assert response.status == 422
    fields = [cause["field"] for cause in response.json["details"]["causes"]]
    assert fields == [f"spec.securityContext.sysctls[{index}].name" for index in (1, 2, 3, 4)]
    assert 'Invalid value: "foo-": must have at most 253 characters and match regex ^' in response.message


@pytest.mark.parametrize(
    ("taints", "problem"),
    [
        ([{"key": "a"}], "metadata.taints[0].effect: Required value"),
        ([{"key": "a", "effect": ""}], "metadata.taints[0].effect: Required value"),
        ([{"key": "a", "effect": "Never"}], 'metadata.taints[0].effect: Unsupported value: "Never"'),
        ([{"key": "a=b", "effect": "NoSchedule"}], 'metadata.taints[0].key: Invalid value: "a=b"'),
        ([{"key": "a", "effect": "NoExecute"}] * 2, "metadata.taints[1]: Duplicate value"),
    ],
)
async def test_invalid_taints_are_rejected(client: Client, taints: list[dict[str, str]], problem: str) -> None:
    created = await client.post(NODES, node("invalid") | {"spec": {"taints": taints}})
    await client.post(NODES, node("n"))
    patched = await client.patch(f"{NODES}/n", {"spec": {"taints": taints}}, "merge-patch+json")
    stored = (await client.get(f"{NODES}/n")).json
    put = await client.put(f"{NODES}/n", stored | {"spec": {"taints": taints}})
    for response in (created, patched, put):
        assert response.status == 422
        assert problem in response.message


async def test_an_invalid_timeout_is_rejected(client: Client) -> None:
    assert (await client.get(f"{PODS}?timeout=30s")).status == 200
    response = await client.get(f"{PODS}?timeout=invalid")
    expected = 'invalid timeout specified in the request URL - time: invalid duration "invalid"'
    assert (response.status, response.message) == (400, expected)


async def test_duplicate_and_unknown_fields_are_reported_together(client: Client) -> None:
    body = b'{"metadata": {"name": "m"}, "data": {"a": "1", "a": "2"}, "unknown": 1}'
    response = await client.post(f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    assert response.status == 400
    assert response.message.endswith('strict decoding error: duplicate field "data.a", unknown field "unknown"')


async def test_the_problems_of_strict_decoding_are_in_the_order_of_the_body(client: Client) -> None:
    body = b'{"unknown": 1, "metadata": {"name": "m", "foo": 1}, "data": {"a": "1", "a": "2"}, "more": {}}'
    response = await client.post(f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    problems = 'unknown field "unknown", unknown field "metadata.foo", duplicate field "data.a", unknown field "more"'
    assert response.message.endswith(f"strict decoding error: {problems}")


async def test_a_review_has_no_table(client: Client) -> None:
    table, path = (
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    )
    review = {"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}
    assert (await client("POST", path, review, accept=table)).status == 406
    assert (await client("POST", path, review, accept=f"{table},application/json")).status == 201


async def test_strict_validation_of_an_applied_configuration_rejects_duplicate_keys(client: Client) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata:\n  a: '1'\n  a: '2'\n"
    path = f"{CONFIG_MAPS}/m?fieldManager=test"
    rejected = await client(
        "PATCH", f"{path}&fieldValidation=Strict", body, content_type="application/apply-patch+yaml"
    )
    assert (rejected.status, rejected.message) == (
        400,
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n"
        '  line 6: key "a" already set in map',
    )
    assert (await client("PATCH", path, body, content_type="application/apply-patch+yaml")).status == 201


async def test_duplicate_fields_in_yaml_are_reported_with_their_line(client: Client) -> None:
    body = b"metadata:\n  name: m\ndata:\n  a: '1'\n  a: '2'\n"
    query = "fieldValidation=Strict"
    response = await client("POST", f"{CONFIG_MAPS}?{query}", body, content_type="application/yaml")
    assert response.status == 400
    assert response.message.endswith(
        'strict decoding error: yaml: unmarshal errors:\n  line 5: key "a" already set in map'
    )


async def test_yaml_that_begins_with_a_brace_is_checked_as_yaml(client: Client) -> None:
    path = f"{CONFIG_MAPS}?fieldValidation=Strict"
    created = await client("POST", path, b"{metadata: {name: m}, data: {a: b}}", content_type="application/yaml")
    assert created.status == 201
    response = await client("POST", path, b"{metadata: {name: n},\n a: b,\n a: c}", content_type="application/yaml")
    assert response.status == 400
    assert 'line 3: key "a" already set in map' in response.message
    assert 'unknown field "a"' in response.message


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
async def test_json_of_any_depth_is_accepted_or_rejected(client: Client, media_type: str) -> None:
    for depth in range(900, 1000):
        spec = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"metadata":{"name":"p"},"spec":' + spec + b"}"
        assert (await client("POST", f"{PODS}?fieldValidation=Strict", body, content_type=media_type)).status == 400


async def test_applying_an_undeclared_field_names_it_as_kube_apiserver_does(client: Client) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "x", "y": 1}], "z": 1, "tolerations": [{"k": 1}]},
    }
    response = await client.patch(f"{PODS}/p?fieldManager=m", config, "apply-patch+yaml")
    paths = ('.spec.containers[name="c"].y', ".spec.z", ".spec.tolerations[0].k")
    lines = [f"  {path}: field not declared in schema" for path in paths]
    prefix = "failed to create typed patch object (default/p; /v1, Kind=Pod): errors:"
    assert (response.status, response.message) == (500, "\n".join([prefix, *lines]))
    assert "reason" not in response.json


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
_CONTAINER = '.spec.template.spec.containers[name="c"]'


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"replicas": "three"}, ".spec.replicas: expected numeric (int or float), got string"),
        ({"replicas": True}, ".spec.replicas: expected numeric (int or float), got bool"),
        ({"replicas": {}}, ".spec.replicas: expected numeric (int or float), got map[string]interface {}"),
        ({"paused": "no"}, ".spec.paused: expected boolean, got &{no}"),
        ({"paused": 1500000}, ".spec.paused: expected boolean, got &{1.5e+06}"),
        ({"selector": ["a", None]}, ".spec.selector: expected map, got &{[a <nil>]}"),
        (
            {"selector": {"matchLabels": {"a": 80}}},
            ".spec.selector.matchLabels.a: expected string, got &value.valueUnstructured{Value:80}",
        ),
        (
            {"selector": {"matchLabels": {"a": {"b": ["c", 1, None]}}}},
            ".spec.selector.matchLabels.a: expected string, got &value.valueUnstructured{Value:"
            'map[string]interface {}{"b":[]interface {}{"c", 1, interface {}(nil)}}}',
        ),
        (
            {"template": {"spec": {"containers": {"a": 1}}}},
            ".spec.template.spec.containers: expected list, got &{map[a:1]}",
        ),
        (
            {"template": {"spec": {"containers": [None]}}},
            ".spec.template.spec.containers: element 0: associative list with keys may not have a null element",
        ),
        (
            {"template": {"spec": {"containers": ["c"]}}},
            ".spec.template.spec.containers: element 0: associative list with keys may not have non-map elements",
        ),
        (
            {"template": {"spec": {"containers": [{"image": "x"}]}}},
            ".spec.template.spec.containers: element 0: associative list with keys has an element that omits all key"
            ' fields ["name"] (and doesn\'t have default values for any key fields)',
        ),
        (
            {"template": {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}},
            '.spec.template.spec.containers: duplicate entries for key [name="c"]',
        ),
        (
            {"template": {"spec": {"containers": [{"name": "c", "args": ["a", 1]}]}}},
            f"{_CONTAINER}.args[1]: expected string, got &value.valueUnstructured{{Value:1}}",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": ["1"]}}}]}}},
            f"{_CONTAINER}.resources.limits.cpu: expected any scalar, got &{{[1]}}",
        ),
        (
            {"template": {"metadata": {"finalizers": ["f", "f"]}}},
            '.spec.template.metadata.finalizers: duplicate entries for key [="f"]',
        ),
        (
            {"template": {"metadata": {"finalizers": [{}]}}},
            ".spec.template.metadata.finalizers: element 0: associative list without keys has an element that's"
            " a map type",
        ),
    ],
)
async def test_applying_a_value_of_another_type_fails_as_in_kube_apiserver(
    client: Client, change: dict[str, Any], problem: str
) -> None:
    config = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": change}
    response = await client.patch(f"{DEPLOYMENTS}/d?fieldManager=m", config, "apply-patch+yaml")
    expected = f"failed to create typed patch object (/d; apps/v1, Kind=Deployment): {problem}"
    assert (response.status, response.message) == (500, expected)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"replicas": 1.5}, "cannot convert float64 to int32"),
        (
            {"template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "one"}}}]}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
async def test_applying_a_value_of_another_form_fails_as_in_kube_apiserver(
    client: Client, change: dict[str, Any], problem: str
) -> None:
    config = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": change}
    response = await client.patch(f"{DEPLOYMENTS}/d?fieldManager=m", config, "apply-patch+yaml")
    prefix = "failed to convert new object (/d; apps/v1, Kind=Deployment) to proper version: "
    converted = "unable to convert unstructured object to apps/v1, Kind=Deployment: "
    assert (response.status, response.message) == (500, f"{prefix}{converted}{problem}")


async def test_the_problems_of_a_configuration_are_not_much_longer_than_it(client: Client) -> None:
    """Each problem names its path, of which a client chooses the length."""
    devices = [{"name": "d", "attributes": {"k" * 10_000: {f"field{number}": 1 for number in range(1_000)}}}]
    slice_ = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}}
    path = "/apis/resource.k8s.io/v1/resourceslices/s?fieldManager=m"
    response = await client.patch(path, slice_ | {"spec": {"devices": devices}}, "apply-patch+yaml")
    assert response.status == 500
    assert ".field0: field not declared in schema" in response.message
    assert len(response.message) < 100_000


async def test_a_configuration_of_another_version_is_not_applied(client: Client) -> None:
    config = {"apiVersion": "apps/v1beta1", "kind": "Deployment", "metadata": {"name": "d"}}
    response = await client.patch(f"{DEPLOYMENTS}/d?fieldManager=m", config, "apply-patch+yaml")
    assert (response.status, response.message) == (
        400,
        "Incorrect version specified in apply patch. Specified patch version: apps/v1beta1, expected: apps/v1",
    )


async def test_integers_out_of_range_are_rejected(client: Client) -> None:
    new = pod("p", terminationGracePeriodSeconds=2**63, priority=2**31)
    response = await client.post(PODS, new)
    problem = "json: cannot unmarshal number 9223372036854775808 into Go struct field PodSpec.spec."
    assert (response.status, problem in response.message) == (400, True)
    assert (await client.post(PODS, pod("p", activeDeadlineSeconds=2**40))).status == 201


async def test_data_that_is_not_base64_is_rejected(client: Client) -> None:
    response = await client.post(SECRETS, {"metadata": {"name": "s"}, "data": {"a": "%"}})
    assert (response.status, "illegal base64 data" in response.message) == (400, True)
    assert (await client.post(SECRETS, {"metadata": {"name": "s"}, "data": {"a": "dGV\nzdA=="}})).status == 201
