"""Who is asking, and what the server says about users: tokens, impersonation, reviews."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict

from kubestow.devcluster.apiserver.authentication import ANONYMOUS, Authenticator, read_tokens
from kubestow.devcluster.apiserver.requests import ADMIN, UserInfo
from kubestow.devcluster.apiserver.server import APIServerOptions
from kubestow.devcluster.apiserver.statuses import StatusError
from kubestow.devcluster.cluster import DevCluster
from kubestow.errors import InputError
from tests.devcluster.client import Client

ANN = UserInfo("ann", ("dev", "system:authenticated"), "7")
TOKENS = {"secret": ANN}
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
MAY_CREATE = {"resourceAttributes": {"verb": "create", "resource": "pods"}}


def who(
    path: str = "/api/v1/pods", *, tokens: dict[str, UserInfo] | None = TOKENS, **headers: str | list[str]
) -> UserInfo:
    sent = CIMultiDict[str]()
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            sent.add(name.replace("_", "-"), value)
    return Authenticator(tokens).user(sent, path)


@pytest.mark.parametrize("authorization", ["Bearer secret", "bearer  secret", "BEARER secret "])
def test_the_holder_of_a_token_is_its_user(authorization: str) -> None:
    assert who(Authorization=authorization) == ANN


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer x", "Basic c2VjcmV0", "secret", "Bearer \udcff"])
def test_whoever_is_not_known_is_refused(authorization: str) -> None:
    with pytest.raises(StatusError, match="Unauthorized") as refused:
        who(Authorization=authorization)
    assert refused.value.code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz/ping", "/version", "/version/"])
def test_whoever_shows_nothing_may_look_at_health_and_version(path: str) -> None:
    assert who(path) == ANONYMOUS
    with pytest.raises(StatusError):
        who(path, Authorization="Bearer x")


@pytest.mark.parametrize("path", ["/", "/versions", "/healthz2", "/api", "/metrics", "/openapi/v3"])
def test_and_at_nothing_else(path: str) -> None:
    with pytest.raises(StatusError):
        who(path)


def test_where_nothing_is_asked_for_everybody_is_the_administrator() -> None:
    assert who(tokens=None) == who(tokens=None, Authorization="Bearer x") == ADMIN


def test_who_got_in_may_speak_as_another() -> None:
    bob = who(tokens=None, Impersonate_User="bob", Impersonate_Group=["a", "b"], Impersonate_Uid="9")
    assert bob == UserInfo("bob", ("a", "b", "system:authenticated"), "9")
    account = who(Authorization="Bearer secret", Impersonate_User="system:serviceaccount:ns:name")
    assert account.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    reasoned = who(tokens=None, Impersonate_User="bob", Impersonate_Extra_Why=["a", "b"])
    assert reasoned.extra == {"why": ["a", "b"]}


def test_nobody_speaks_as_another_before_being_known() -> None:
    with pytest.raises(StatusError, match="Unauthorized"):
        who(Impersonate_User="bob")
    with pytest.raises(StatusError, match="and no user"):
        who(tokens=None, Impersonate_Group="system:masters")


def test_a_token_file_is_read_as_kube_apiserver_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('a,ann,7,"dev, ops"\n\nb,bob,8\n')
    assert read_tokens(path) == {
        "a": UserInfo("ann", ("dev", "ops", "system:authenticated"), "7"),
        "b": UserInfo("bob", ("system:authenticated",), "8"),
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [("", "holds no token"), ("x\n", "line 1: expected token,user"), ("a,b,c\n,b,c\n", "line 2: expected token,user")],
)
def test_a_bad_token_file_is_one_line(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(InputError, match=problem):
        read_tokens(path)


@pytest.fixture
def guarded() -> Client:
    return Client(DevCluster(kubelets=False, apiserver=APIServerOptions(tokens=TOKENS)))


async def reviewed(client: Client, path: str, spec: dict[str, Any]) -> Any:
    answer = await client.post(path, {"spec": spec})
    assert answer.status == 201, answer.content
    return answer.json["status"]


async def test_a_token_review_tells_the_holder(guarded: Client) -> None:
    user = {"username": "ann", "uid": "7", "groups": ["dev", "system:authenticated"]}
    assert await reviewed(guarded, REVIEWS, {"token": "secret"}) == {"authenticated": True, "user": user}


async def test_a_token_review_knows_no_stranger(guarded: Client, client: Client) -> None:
    for asked in (guarded, client):
        assert await reviewed(asked, REVIEWS, {"token": "x"}) == {"user": {}, "error": "invalid bearer token"}
    refused = await guarded.post(REVIEWS, {"spec": {}})
    assert (refused.status, refused.message) == (400, "token is required for TokenReview in authentication")


async def test_everybody_who_is_known_may_do_everything(guarded: Client) -> None:
    allowed = await reviewed(guarded, ACCESS, {"user": "ann", **MAY_CREATE})
    assert allowed["allowed"] is True
    anonymous = await reviewed(guarded, ACCESS, {"user": "x", "groups": ["system:unauthenticated"], **MAY_CREATE})
    assert anonymous["allowed"] is False


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (MAY_CREATE, 'spec.user: Invalid value: "": at least one of user or group must be specified'),
        ({"user": "ann"}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ({"user": "a", "nonResourceAttributes": {"path": "/"}, **MAY_CREATE}, "cannot be specified in combination"),
    ],
)
async def test_a_question_about_nobody_or_nothing_is_refused(
    client: Client, spec: dict[str, Any], problem: str
) -> None:
    refused = await client.post(ACCESS, {"spec": spec})
    assert refused.status == 422 and problem in refused.message
