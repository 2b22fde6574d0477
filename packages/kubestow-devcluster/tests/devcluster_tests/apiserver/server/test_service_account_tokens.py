"""Tokens of service accounts: issuing, reviewing and their end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from devcluster_tests.client import NODES, PODS, Client, ClientResponse, node, pod
from kubestow_devcluster.cluster import DevCluster

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
START = datetime(2026, 11, 20, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> DevCluster:
    return DevCluster(kubelets=False, clock=clock)


@pytest.fixture
async def token(client: Client) -> str:
    await client.post(ACCOUNTS, {"metadata": {"name": "robot"}})
    return str((await client.post(f"{ACCOUNTS}/robot/token", {})).json["status"]["token"])


async def reviewed(client: Client, token: str) -> str:
    """The user name in a token review; empty for a token that is not valid."""
    status = (await client.post(REVIEWS, {"spec": {"token": token}})).json["status"]
    assert bool(status.get("authenticated")) == bool(status["user"])
    return str(status["user"].get("username", ""))


async def test_a_token_authenticates_its_service_account_until_it_expires(
    client: Client, token: str, clock: Clock
) -> None:
    assert await reviewed(client, token) == "system:serviceaccount:default:robot"
    clock.time += timedelta(seconds=3600)
    assert await reviewed(client, token) == ""


async def test_a_token_ends_with_its_service_account(client: Client, token: str) -> None:
    await client.delete(f"{ACCOUNTS}/robot")
    assert await reviewed(client, token) == ""
    await client.post(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert await reviewed(client, token) == ""


async def test_a_changed_token_and_one_for_another_audience_are_not_valid(client: Client, token: str) -> None:
    header, claims, signature = token.split(".")
    for forged in (f"{header}.{claims}.x", f"{header}.{claims[:-4]}AAAA.{signature}", "..", token + "ÿ"):
        assert await reviewed(client, forged) == ""
    issued = await client.post(f"{ACCOUNTS}/robot/token", {"spec": {"audiences": ["vault"]}})
    assert await reviewed(client, issued.json["status"]["token"]) == ""


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"expirationSeconds": 60},
            "Invalid value: 60: may not specify a duration less than 10",
        ),
        ({"expirationSeconds": 2**33}, "may not specify a duration larger than 2^32 seconds"),
    ],
)
@pytest.mark.usefixtures("token")
async def test_a_token_that_cannot_be_issued_is_rejected(client: Client, spec: dict[str, object], problem: str) -> None:
    response = await client.post(f"{ACCOUNTS}/robot/token", {"spec": spec})
    assert response.status == 422 and problem in response.message


async def test_an_unknown_service_account_gets_no_token(client: Client) -> None:
    assert (await client.post(f"{ACCOUNTS}/nobody/token", {})).status == 404


async def bound_token(client: Client, **reference: str) -> ClientResponse:
    return await client.post(f"{ACCOUNTS}/robot/token", {"spec": {"boundObjectRef": reference}})


@pytest.mark.usefixtures("token")
async def test_a_token_bound_to_a_pod_names_it_and_its_node_and_ends_with_it(client: Client) -> None:
    node_uid = (await client.post(NODES, node("n"))).json["metadata"]["uid"]
    uid = (await client.post(PODS, pod("p", nodeName="n", serviceAccountName="robot"))).json["metadata"]["uid"]
    issued = await bound_token(client, kind="Pod", apiVersion="v1", name="p", uid=uid)
    assert issued.json["spec"]["boundObjectRef"] == {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": uid}
    token = issued.json["status"]["token"]
    status = (await client.post(REVIEWS, {"spec": {"token": token}})).json["status"]
    extra = {key.partition("/")[2]: values for key, values in status["user"]["extra"].items()}
    del extra["credential-id"]
    assert extra == {"pod-name": ["p"], "pod-uid": [uid], "node-name": ["n"], "node-uid": [node_uid]}
    await client.delete(f"{PODS}/p", {"gracePeriodSeconds": 0})
    assert await reviewed(client, token) == ""
    await client.post(PODS, pod("p", serviceAccountName="robot"))
    assert await reviewed(client, token) == "", "another pod of this name"


@pytest.mark.usefixtures("token")
async def test_a_token_ends_a_minute_after_its_pod_should_be_gone(client: Client, clock: Clock) -> None:
    await client.post(PODS, pod("p", nodeName="n", serviceAccountName="robot", terminationGracePeriodSeconds=30))
    token = (await bound_token(client, kind="Pod", apiVersion="v1", name="p")).json["status"]["token"]
    await client.delete(f"{PODS}/p")
    clock.time += timedelta(seconds=80)
    assert await reviewed(client, token) != ""
    clock.time += timedelta(seconds=20)
    assert await reviewed(client, token) == ""


@pytest.mark.parametrize(
    ("reference", "status", "problem"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "name": "none"}, 404, 'pods "none" not found'),
        (
            {"kind": "Pod", "apiVersion": "v1", "name": "p"},
            400,
            'cannot bind token for serviceaccount "robot" to pod running with different serviceaccount name.',
        ),
        (
            {"kind": "ConfigMap", "apiVersion": "v1", "name": "c"},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        (
            {"kind": "Secret", "apiVersion": "v1", "name": "s", "uid": "other"},
            409,
            'Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (other) does not',
        ),
    ],
)
@pytest.mark.usefixtures("token")
async def test_a_token_cannot_be_bound_to_another_object(
    client: Client, reference: dict[str, str], status: int, problem: str
) -> None:
    await client.post(PODS, pod("p"))
    await client.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
    response = await bound_token(client, **reference)
    assert response.status == status
    assert problem in response.message


@pytest.mark.usefixtures("token")
async def test_a_token_request_with_a_wrong_type_is_rejected(client: Client) -> None:
    response = await client.post(f"{ACCOUNTS}/robot/token", {"spec": {"expirationSeconds": "1h"}})
    assert (response.status, "cannot be handled as a TokenRequest" in response.message) == (400, True)
