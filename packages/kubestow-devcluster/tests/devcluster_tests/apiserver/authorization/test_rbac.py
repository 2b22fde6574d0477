"""RBAC: what roles and bindings allow, in requests and in access reviews."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import PODS, Client, ClientResponse, pod
from devcluster_tests.wire.recordings import Exchange, scenario
from kubestow.http.messages import ALL_AUTHENTICATED, ANONYMOUS, UserInfo
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import ControllerManagerOptions, DevCluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.fixture
def server() -> DevCluster:
    return DevCluster(kubelets=False, apiserver=APIServerOptions(rbac=True))


class UserClient(Client):
    """Sends requests as a user, by default without groups."""

    def __init__(self, server: DevCluster, name: str, *groups: str) -> None:
        super().__init__(server)
        self._user = UserInfo(name, (*groups, ALL_AUTHENTICATED))

    def request(self, method: str, path: str, body: Any = None, content_type: str = "", accept: str = "") -> Request:
        request = super().request(method, path, body, content_type, accept)
        return Request(method, request.path, request.query, request.headers, request.body, self._user)


def recorded_as_users() -> list[Exchange]:
    names = ("binding", "errors", "kubectl-get-forbidden", "leases")
    exchanges = [exchange for name in names for exchange in scenario(name)]
    return [exchange for exchange in exchanges if exchange.response.status == 403 and exchange.request.user != "admin"]


@pytest.mark.parametrize("exchange", recorded_as_users(), ids=str)
async def test_a_forbidden_request_gets_the_recorded_response(server: DevCluster, exchange: Exchange) -> None:
    request = exchange.request
    user = ANONYMOUS if request.user == "anonymous" else UserInfo(request.user, (ALL_AUTHENTICATED,))
    route, _, query = request.path.partition("?")
    pairs = dict(part.split("=") for part in query.split("&") if part)
    headers = RequestHeaders(content_type=request.headers.get("Content-Type", "application/json"))
    response = await server.api.handle(Request(request.method, route, pairs, headers, request.body, user))
    assert response.stream is None
    assert ClientResponse(response).json == exchange.response.body


async def test_the_scheduler_is_allowed_what_kube_scheduler_is(server: DevCluster) -> None:
    (exchange,) = (one for one in scenario("errors") if one.number == 22)
    scheduler = UserClient(server, "system:kube-scheduler")
    status = (await scheduler.post(REVIEWS, exchange.request.body)).json["status"]
    assert status == exchange.response.body["status"]
    attributes = {"verb": "delete", "resource": "nodes"}
    review = await scheduler.post(REVIEWS, {"spec": {"resourceAttributes": attributes}})
    assert review.json["status"] == {"allowed": False}


async def bind(client: Client, role: str, *, namespace: str = "default", **subject: str) -> None:
    """Bind a cluster role in a namespace."""
    binding = {
        "metadata": {"name": f"{role}-{namespace}"},
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    assert (await client.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)).status == 201


async def test_a_role_binding_grants_a_cluster_role_in_its_namespace_only(server: DevCluster, client: Client) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "reader"}, "rules": rules})
    await bind(client, "reader", kind="Group", name="dev")
    ann = UserClient(server, "ann", "dev")
    assert (await ann.get(PODS)).status == 200
    assert (await ann.get("/api/v1/namespaces/kube-system/pods")).status == 403
    assert (await ann.get("/api/v1/pods")).status == 403
    assert (await ann.post(PODS, pod())).status == 403
    await client.delete(f"{RBAC}/namespaces/default/rolebindings/reader-default")
    assert (await ann.get(PODS)).status == 403


@pytest.mark.parametrize(
    ("rule", "allowed", "forbidden"),
    [
        ({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["get"]}, "pods/p", "pods/q"),
        ({"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get"]}, "pods/p/status", "pods/p"),
        ({"apiGroups": [""], "resources": ["*/status"], "verbs": ["get"]}, "pods/p/status", "pods/p"),
        ({"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}, "pods", "pods/p"),
        (
            {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["p"], "verbs": ["list"]},
            "pods?fieldSelector=metadata.name=p",
            "pods",
        ),
    ],
)
async def test_a_rule_is_about_verbs_groups_resources_and_names(
    server: DevCluster, client: Client, rule: dict[str, Any], allowed: str, forbidden: str
) -> None:
    for name in ("p", "q"):
        await client.post(PODS, pod(name))
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "role"}, "rules": [rule]})
    await bind(client, "role", kind="User", name="ann")
    ann = UserClient(server, "ann")
    assert (await ann.get(f"/api/v1/namespaces/default/{allowed}")).status == 200
    assert (await ann.get(f"/api/v1/namespaces/default/{forbidden}")).status == 403


@pytest.mark.parametrize("query", ["", "&dryRun=All"])
async def test_a_put_or_apply_that_creates_needs_the_verb_create(
    server: DevCluster, client: Client, query: str
) -> None:
    rules = [{"apiGroups": ["coordination.k8s.io", ""], "resources": ["*"], "verbs": ["get", "patch", "update"]}]
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "writer"}, "rules": rules})
    await bind(client, "writer", kind="User", name="ann")
    ann = UserClient(server, "ann")
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "x"}, "spec": {}}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}
    maps = "/api/v1/namespaces/default/configmaps"
    put = await ann.put(f"{leases}/x?fieldManager=m{query}", lease)
    applied = await ann.patch(f"{maps}/x?fieldManager=m{query}", config, "apply-patch+yaml")
    assert (put.status, applied.status) == (403, 403)
    assert 'User "ann" cannot create resource "configmaps"' in applied.message
    assert (await client.get(f"{leases}/x")).status == (await client.get(f"{maps}/x")).status == 404
    lease = (await client.post(leases, lease)).json
    await client.post(maps, config)
    assert (await ann.put(f"{leases}/x?fieldManager=m{query}", lease)).status == 200
    assert (await ann.patch(f"{maps}/x?fieldManager=m{query}", config, "apply-patch+yaml")).status == 200


async def test_unknown_resources_are_forbidden_before_they_are_not_found(server: DevCluster) -> None:
    assert (await UserClient(server, "ann").get("/apis/example.com/v1/widgets")).status == 403
    assert (await UserClient(server, "root", "system:masters").get("/apis/example.com/v1/widgets")).status == 404


async def test_discovery_and_health_are_allowed_to_every_user(server: DevCluster) -> None:
    ann = UserClient(server, "ann")
    assert [(await ann.get(path)).status for path in ("/api", "/apis/apps/v1", "/readyz", "/metrics")] == [
        200,
        200,
        200,
        403,
    ]


async def test_rules_of_a_user_are_listed(server: DevCluster, client: Client) -> None:
    await bind(client, "system:auth-delegator", kind="User", name="ann")
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = (await UserClient(server, "ann").post(reviews, {"spec": {"namespace": "default"}})).json["status"]
    assert {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"]} in status[
        "resourceRules"
    ]
    assert not status["incomplete"] and status["nonResourceRules"]


@pytest.fixture
async def cluster() -> AsyncIterator[DevCluster]:
    options = APIServerOptions(rbac=True, tokens={"secret": UserInfo("root", ("system:masters",))})
    async with DevCluster(apiserver=options, controller_manager=ControllerManagerOptions()) as cluster:
        yield cluster


async def status_of(cluster: DevCluster, path: str, **headers: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(cluster.url + path, headers=headers) as response:
        return response.status


async def until(cluster: DevCluster, path: str, status: int, **headers: str) -> None:
    """Wait for the response to a request; a controller has to act first."""
    async with asyncio.timeout(HANG_LIMIT):
        while await status_of(cluster, path, **headers) != status:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_service_account_uses_its_token(cluster: DevCluster) -> None:
    client = Client(cluster)
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    await until(cluster, account, 200, Authorization="Bearer secret")
    issued = await client.post(f"{account}/token", {"spec": {"expirationSeconds": 600}})
    assert issued.status == 201
    bearer = {"Authorization": f"Bearer {issued.json['status']['token']}"}
    assert await status_of(cluster, PODS, **bearer) == 403
    # The role is aggregated by a controller.
    await bind(client, "view", kind="ServiceAccount", name="default", namespace="default")
    await until(cluster, PODS, 200, **bearer)
    assert await status_of(cluster, "/api/v1/namespaces/default/secrets", **bearer) == 403
    await client.delete(account)
    assert await status_of(cluster, PODS, **bearer) == 401


async def test_requests_without_credentials_are_those_of_the_anonymous_user(cluster: DevCluster) -> None:
    assert await status_of(cluster, PODS) == 403
    assert await status_of(cluster, "/readyz") == 200
    assert await status_of(cluster, PODS, Authorization="Bearer guessed") == 401


async def test_impersonation_needs_a_permission(cluster: DevCluster) -> None:
    client = Client(cluster)
    issued = await client.post("/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "robot"}})
    assert issued.status == 201
    token = (await client.post("/api/v1/namespaces/kube-system/serviceaccounts/robot/token", {})).json["status"][
        "token"
    ]
    robot = {"Authorization": f"Bearer {token}"}
    root = {"Authorization": "Bearer secret"}
    assert await status_of(cluster, PODS, **robot, **{"Impersonate-User": "root"}) == 403
    assert await status_of(cluster, PODS, **root, **{"Impersonate-User": "ann"}) == 403
    masters = {"Impersonate-User": "ann", "Impersonate-Group": "system:masters"}
    assert await status_of(cluster, PODS, **root, **masters) == 200
    account = {"Impersonate-User": "system:serviceaccount:default:default"}
    rule = {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]}
    await client.post(f"{RBAC}/clusterroles", {"metadata": {"name": "impersonator"}, "rules": [rule]})
    await bind(client, "impersonator", kind="ServiceAccount", name="robot", namespace="default")
    binding = {
        "metadata": {"name": "robot"},
        "roleRef": {"kind": "ClusterRole", "name": "impersonator"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "kube-system"}],
    }
    await client.post(f"{RBAC}/clusterrolebindings", binding)
    await client.post(
        f"{RBAC}/clusterrolebindings",
        {
            "metadata": {"name": "pods"},
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        },
    )
    assert await status_of(cluster, PODS, **robot, **account) == 200
    assert await status_of(cluster, PODS, **robot, **account, **{"Impersonate-Group": "system:masters"}) == 403


DEPLOYMENTS_RULE = {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]}


async def grant(client: Client, *rules: dict[str, Any], name: str = "ann") -> None:
    """Allow the user ``name`` these rules in the namespace default."""
    role = {"metadata": {"name": f"of-{name}"}, "rules": rules}
    assert (await client.post(f"{RBAC}/clusterroles", role)).status == 201
    await bind(client, f"of-{name}", kind="User", name=name)


WRITES_RBAC = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings"],
    "verbs": ["create", "update", "patch", "get"],
}


def role(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "new"}, "rules": rules}


async def test_a_user_cannot_grant_what_it_is_not_allowed(server: DevCluster, client: Client) -> None:
    await grant(client, WRITES_RBAC, DEPLOYMENTS_RULE)
    ann, roles = UserClient(server, "ann"), f"{RBAC}/namespaces/default/roles"
    more = {**DEPLOYMENTS_RULE, "verbs": ["get", "delete", "update"]}
    refused = await ann.post(roles, role(more, {**DEPLOYMENTS_RULE, "resourceNames": ["web"]}))
    assert (refused.status, refused.message) == (
        403,
        'roles.rbac.authorization.k8s.io "new" is forbidden: user "ann" (groups=["system:authenticated"]) is'
        " attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:["apps"], Resources:["deployments"], Verbs:["delete" "update"]}',
    )
    assert (await ann.post(roles, role(DEPLOYMENTS_RULE))).status == 201
    patch = await ann("PATCH", f"{roles}/new", {"rules": [more]}, content_type="application/merge-patch+json")
    assert patch.status == 403
    labels = {"metadata": {"finalizers": ["example.com/one"]}}
    only_finalizers = await ann("PATCH", f"{roles}/new", labels, content_type="application/merge-patch+json")
    assert only_finalizers.status == 200


async def test_a_user_binds_only_roles_whose_permissions_it_has(server: DevCluster, client: Client) -> None:
    await grant(client, WRITES_RBAC)
    ann, bindings = UserClient(server, "ann"), f"{RBAC}/namespaces/default/rolebindings"
    binding: dict[str, Any] = {
        "metadata": {"name": "new"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:volume-scheduler"},
        "subjects": [{"kind": "User", "name": "ann"}],
    }
    assert (await ann.post(bindings, binding)).status == 403
    missing = await ann.post(bindings, {**binding, "roleRef": {**binding["roleRef"], "name": "none"}})
    assert (missing.status, missing.message) == (404, 'clusterroles.rbac.authorization.k8s.io "none" not found')
    await grant(
        client,
        {**WRITES_RBAC, "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["system:volume-scheduler"]},
        WRITES_RBAC,
        name="bob",
    )
    assert (await UserClient(server, "bob").post(bindings, binding)).status == 201


async def test_the_verb_escalate_allows_any_role(server: DevCluster, client: Client) -> None:
    await grant(client, {**WRITES_RBAC, "verbs": ["create", "escalate"]})
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    assert (await UserClient(server, "ann").post(f"{RBAC}/namespaces/default/roles", role(everything))).status == 201


async def test_an_aggregation_rule_needs_all_permissions(server: DevCluster, client: Client) -> None:
    rule = {**WRITES_RBAC, "resources": ["clusterroles"]}
    new = {"metadata": {"name": "writer"}, "rules": [rule]}
    assert (await client.post(f"{RBAC}/clusterroles", new)).status == 201
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "writer"}
    binding = {"metadata": {"name": "writer"}, "roleRef": reference, "subjects": [{"kind": "User", "name": "ann"}]}
    assert (await client.post(f"{RBAC}/clusterrolebindings", binding)).status == 201
    aggregated = role() | {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    refused = await UserClient(server, "ann").post(f"{RBAC}/clusterroles", aggregated)
    assert refused.status == 403
    assert refused.message.endswith("must have cluster-admin privileges to use an aggregationRule")


async def test_health_checks_have_the_names_of_kube_apiserver(client: Client) -> None:
    lines = (await client.get("/readyz?verbose&exclude=log")).content.decode().splitlines()
    assert lines[:2] == ["[+]ping ok", "[+]log excluded: ok"]
    assert "[+]poststarthook/rbac/bootstrap-roles ok" in lines
    assert lines[-2:] == ["[+]shutdown ok", "readyz check passed"]
    assert (await client.get("/livez/poststarthook/rbac/bootstrap-roles")).content == b"ok"
    lines = (await client.get("/livez?verbose&exclude=etcd")).content.decode().splitlines()
    assert lines[-2:] == [
        'warn: some health checks cannot be excluded: no matches for "etcd"',
        "livez check passed",
    ]
