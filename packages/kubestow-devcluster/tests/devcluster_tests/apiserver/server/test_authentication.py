"""Authentication: tokens, anonymous access, impersonation, and the review kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from multidict import CIMultiDict

from devcluster_tests.client import Client
from kubestow.errors import InputError
from kubestow.http.messages import ANONYMOUS, UserInfo
from kubestow_devcluster.apiserver.endpoints.requests import effective_user
from kubestow_devcluster.apiserver.security.authentication import ADMIN, RequestAuthenticator, read_token_file
from kubestow_devcluster.apiserver.security.authorization import AlwaysAllow
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.apiserver.statuses import StatusError
from kubestow_devcluster.cluster import DevCluster

ANN = UserInfo("ann", ("dev", "system:authenticated"), "7")
TOKENS = {"secret": ANN}
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CREATE_PODS = {"resourceAttributes": {"verb": "create", "resource": "pods"}}


def authenticate(
    path: str = "/api/v1/pods", *, tokens: dict[str, UserInfo] = TOKENS, **headers: str | list[str]
) -> UserInfo:
    sent = CIMultiDict[str]()
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            sent.add(name.replace("_", "-"), value)
    user = RequestAuthenticator(tokens, client_certificates=False).authenticate_request(sent, path, None)
    return effective_user(AlwaysAllow(), user, sent)


@pytest.mark.parametrize("authorization", ["Bearer secret", "bearer  secret", "BEARER secret "])
def test_a_bearer_token_authenticates_its_user(authorization: str) -> None:
    assert authenticate(Authorization=authorization) == ANN


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer x", "Basic c2VjcmV0", "secret", "Bearer \udcff"])
def test_invalid_credentials_get_401(authorization: str) -> None:
    with pytest.raises(StatusError, match="Unauthorized") as error:
        authenticate(Authorization=authorization)
    assert error.value.code == 401


@pytest.mark.parametrize("path", ["/healthz", "/readyz/ping", "/version", "/version/"])
def test_health_and_version_allow_anonymous_requests(path: str) -> None:
    assert authenticate(path) == ANONYMOUS
    with pytest.raises(StatusError):
        authenticate(path, Authorization="Bearer x")


@pytest.mark.parametrize("path", ["/", "/versions", "/healthz2", "/api", "/metrics", "/openapi/v3"])
def test_other_paths_reject_anonymous_requests(path: str) -> None:
    with pytest.raises(StatusError):
        authenticate(path)


def test_without_authentication_every_request_is_the_administrators() -> None:
    assert authenticate(tokens={}) == authenticate(tokens={}, Authorization="Bearer x") == ADMIN


def test_an_authenticated_user_can_impersonate_others() -> None:
    bob = authenticate(tokens={}, Impersonate_User="bob", Impersonate_Group=["a", "b"], Impersonate_Uid="9")
    assert bob == UserInfo("bob", ("a", "b", "system:authenticated"), "9")
    account = authenticate(Authorization="Bearer secret", Impersonate_User="system:serviceaccount:ns:name")
    assert account.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    with_extra = authenticate(tokens={}, Impersonate_User="bob", Impersonate_Extra_Why=["a", "b"])
    assert with_extra.extra == {"why": ["a", "b"]}


def test_impersonation_needs_authentication_and_a_user() -> None:
    with pytest.raises(StatusError, match="Unauthorized"):
        authenticate(Impersonate_User="bob")
    with pytest.raises(StatusError, match="without impersonating a user"):
        authenticate(tokens={}, Impersonate_Group="system:masters")


def test_a_token_file_has_the_format_of_kube_apiserver(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('a,ann,7,"dev, ops"\n\nb,bob,8\n')
    assert read_token_file(path) == {
        "a": UserInfo("ann", ("dev", "ops", "system:authenticated"), "7"),
        "b": UserInfo("bob", ("system:authenticated",), "8"),
    }


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "contains no tokens"),
        ("x\n", "line 1: expected token,user"),
        ("a,b,c\n,b,c\n", "line 2: expected token,user"),
    ],
)
def test_an_invalid_token_file_is_a_one_line_error(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(content)
    with pytest.raises(InputError, match=problem):
        read_token_file(path)


@pytest.fixture
def secured() -> Client:
    return Client(DevCluster(kubelets=False, apiserver=APIServerOptions(tokens=TOKENS)))


async def review(client: Client, path: str, spec: dict[str, Any]) -> Any:
    response = await client.post(path, {"spec": spec})
    assert response.status == 201, response.content
    return response.json["status"]


async def test_a_token_review_returns_the_user_of_the_token(secured: Client) -> None:
    user = {"username": "ann", "uid": "7", "groups": ["dev", "system:authenticated"]}
    assert await review(secured, TOKEN_REVIEWS, {"token": "secret"}) == {
        "authenticated": True,
        "user": user,
    }


async def test_a_token_review_of_an_unknown_token_is_not_authenticated(secured: Client, client: Client) -> None:
    for server in (secured, client):
        assert await review(server, TOKEN_REVIEWS, {"token": "x"}) == {"user": {}, "error": "invalid bearer token"}
    rejected = await secured.post(TOKEN_REVIEWS, {"spec": {}})
    assert (rejected.status, rejected.message) == (400, "token is required for TokenReview in authentication")


async def test_access_reviews_allow_authenticated_users_everything(secured: Client) -> None:
    allowed = await review(secured, ACCESS_REVIEWS, {"user": "ann", **CREATE_PODS})
    assert allowed["allowed"] is True
    anonymous = await review(
        secured, ACCESS_REVIEWS, {"user": "x", "groups": ["system:unauthenticated"], **CREATE_PODS}
    )
    assert anonymous["allowed"] is False


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (CREATE_PODS, 'spec.user: Invalid value: "": at least one of user or group must be specified'),
        ({"user": "ann"}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ({"user": "a", "nonResourceAttributes": {"path": "/"}, **CREATE_PODS}, "cannot be specified in combination"),
    ],
)
async def test_an_access_review_without_subject_or_attributes_is_rejected(
    client: Client, spec: dict[str, Any], problem: str
) -> None:
    rejected = await client.post(ACCESS_REVIEWS, {"spec": spec})
    assert rejected.status == 422 and problem in rejected.message
