"""Delegating authentication and authorization: certificates, tokens, front proxies, anonymous requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from core_tests.client.clocks import AutoAdvancingClock
from core_tests.client.kubeconfigs import kubeconfig, save
from core_tests.client.scripted_server import Responder, ScriptedServer, disconnect, failure, response, scripted_server
from core_tests.serving.harness import (
    ACCESS_REVIEWS,
    CLUSTER_AUTHENTICATION,
    TOKEN_REVIEWS,
    access_review,
    delegating_options,
    secure_port,
    token_review,
)
from kubestow.errors import InputError
from kubestow.http.certificates import CertificateAuthority
from kubestow.http.messages import UserInfo
from kubestow.serving.options import DelegatingAuthenticationOptions, DelegatingAuthorizationOptions, ServingOptions
from kubestow_devcluster.apiserver.security.authentication import ADMIN
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster


@pytest.fixture
async def api() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


class StoppedClock(AutoAdvancingClock):
    """A clock whose sleepers never wake."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.get_running_loop().create_future()


async def test_health_checks_need_no_authorization_and_metrics_do(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", ACCESS_REVIEWS, access_review(False))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        assert (await server.get("/livez")).status == 200
        rejected = await server.get("/metrics")
    assert rejected.status == 403
    assert json.loads(rejected.text) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'forbidden: User "system:anonymous" cannot get path "/metrics"',
        "reason": "Forbidden",
        "code": 403,
    }
    assert api.requests[0].json["spec"] == {
        "user": "system:anonymous",
        "groups": ["system:unauthenticated"],
        "uid": "",
        "extra": {},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_a_token_is_reviewed_and_then_the_access_of_its_user(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", TOKEN_REVIEWS, token_review("prometheus", "monitoring"))
    api.respond("POST", ACCESS_REVIEWS, access_review(True))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        assert (await server.get("/metrics", token="good")).status == 200
    assert api.requests[0].json["spec"] == {"token": "good"}
    assert api.requests[1].json["spec"]["groups"] == ["monitoring", "system:authenticated"]


async def test_review_results_are_cached(api: ScriptedServer, tmp_path: Path) -> None:
    clock = StoppedClock()
    api.respond("POST", TOKEN_REVIEWS, token_review("prometheus"), token_review("prometheus"))
    api.respond("POST", ACCESS_REVIEWS, access_review(True), access_review(False))
    async with secure_port(delegating_options(api, tmp_path), clock=clock) as server:
        for _ in range(3):
            assert (await server.get("/metrics", token="good")).status == 200
        assert len(api.requests) == 2
        clock.seconds += 11
        assert (await server.get("/metrics", token="good")).status == 403
        assert len(api.requests) == 4


async def test_an_invalid_token_is_rejected_even_for_always_allowed_paths(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", TOKEN_REVIEWS, response(201, {"status": {"authenticated": False, "error": "expired"}}))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        rejected = await server.get("/healthz", token="bad")
    assert rejected.status == 401
    assert json.loads(rejected.text)["reason"] == "Unauthorized"


@pytest.mark.parametrize("responder", [failure(403, "Forbidden"), disconnect, response(201, b"not JSON")])
async def test_no_request_is_allowed_if_reviews_fail(api: ScriptedServer, tmp_path: Path, responder: Responder) -> None:
    api.respond("POST", TOKEN_REVIEWS, responder)
    api.respond("POST", ACCESS_REVIEWS, responder)
    async with secure_port(delegating_options(api, tmp_path)) as server:
        assert (await server.get("/metrics", token="any")).status == 401
        rejected = await server.get("/metrics")
    assert rejected.status == 500
    assert "Traceback" not in rejected.text


async def test_a_token_that_is_not_utf8_is_rejected(api: ScriptedServer, tmp_path: Path) -> None:
    async with secure_port(delegating_options(api, tmp_path)) as server:
        sent = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
        assert b" 401 " in (await server.send_raw(sent)).splitlines()[0]
    assert api.requests == []


async def test_tokens_of_the_embedded_api_server_are_accepted(tmp_path: Path) -> None:
    tokens = {"secret": UserInfo("prometheus", ("monitoring", "system:authenticated")), "own": ADMIN}
    async with DevCluster(apiserver=APIServerOptions(tokens=tokens)) as api:
        path = save(tmp_path, kubeconfig(api.url, token="own"))
        options = ServingOptions(
            address="127.0.0.1",
            port=0,
            authentication=DelegatingAuthenticationOptions(kubeconfig=path),
            authorization=DelegatingAuthorizationOptions(kubeconfig=path),
        )
        async with secure_port(options) as server:
            statuses = [(await server.get("/metrics", token=token)).status for token in ("secret", "wrong", "")]
    assert statuses == [200, 401, 403]


async def test_without_delegation_only_always_allowed_paths_are_served() -> None:
    async with secure_port(ServingOptions(address="127.0.0.1", port=0)) as server:
        assert (await server.get("/readyz?exclude=sched-handler-sync")).status == 200
        assert (await server.get("/metrics")).status == 403
        assert (await server.get("/metrics", token="any")).status == 401


async def test_always_allowed_paths_match_as_a_whole() -> None:
    options = ServingOptions(
        address="127.0.0.1",
        port=0,
        authorization=DelegatingAuthorizationOptions(always_allow_paths=("/healthz", "/livez/*")),
    )
    async with secure_port(options) as server:
        assert (await server.get("/livez/ping")).status == 200
        assert (await server.get("/healthz/leaderElection")).status == 403
        assert (await server.get("/livez/%2e%2e/metrics")).status in (403, 404)
        assert (await server.get("/livez/..%2fmetrics")).status == 404


async def test_a_client_certificate_authenticates_a_user_with_groups(api: ScriptedServer, tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("cluster")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    api.respond("POST", ACCESS_REVIEWS, access_review(True))
    presented = (authority.issue_client_certificate("jane", ["operators"]), tmp_path)
    async with secure_port(delegating_options(api, tmp_path, client_ca=tmp_path / "ca.crt")) as server:
        assert (await server.get("/metrics", certificate=presented)).status == 200
    assert api.requests[0].json["spec"]["user"] == "jane"
    assert api.requests[0].json["spec"]["groups"] == ["operators", "system:authenticated"]


async def test_system_masters_need_no_access_review(api: ScriptedServer, tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("cluster")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    presented = (authority.issue_client_certificate("admin", ["system:masters"]), tmp_path)
    async with secure_port(delegating_options(api, tmp_path, client_ca=tmp_path / "ca.crt")) as server:
        assert (await server.get("/configz", certificate=presented)).status == 200
    assert api.requests == []


async def test_a_certificate_of_an_unknown_authority_fails_the_handshake(api: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(CertificateAuthority.generate("cluster").certificate)
    presented = (
        CertificateAuthority.generate("unknown").issue_client_certificate("admin", ["system:masters"]),
        tmp_path,
    )
    async with secure_port(delegating_options(api, tmp_path, client_ca=tmp_path / "ca.crt")) as server:
        with pytest.raises(aiohttp.ClientError):
            await server.get("/configz", certificate=presented)
        assert (await server.get("/livez")).status == 200


async def test_the_client_ca_is_read_from_the_cluster(api: ScriptedServer, tmp_path: Path) -> None:
    authority = CertificateAuthority.generate("cluster")
    api.respond(
        "GET", CLUSTER_AUTHENTICATION, response(200, {"data": {"client-ca-file": authority.certificate.decode()}})
    )
    presented = (authority.issue_client_certificate("admin", ["system:masters"]), tmp_path)
    options = delegating_options(api, tmp_path, skip_lookup=False, tolerate_lookup_failure=False)
    async with secure_port(options) as server:
        assert (await server.get("/configz", certificate=presented)).status == 200


FORWARDED = {"X-Remote-User": "jane", "X-Remote-Group": "operators", "X-Remote-Extra-Reason%2Fwhy": "because"}


def front_proxy_options(
    api: ScriptedServer, directory: Path, clients: CertificateAuthority, proxies: CertificateAuthority
) -> ServingOptions:
    (directory / "ca.crt").write_bytes(clients.certificate)
    (directory / "proxy-ca.crt").write_bytes(proxies.certificate)
    return delegating_options(
        api,
        directory,
        client_ca=directory / "ca.crt",
        request_header_ca=directory / "proxy-ca.crt",
        request_headers=replace(DelegatingAuthenticationOptions().request_headers, allowed_names=("front",)),
    )


async def test_a_front_proxy_authenticates_the_user_in_its_headers(api: ScriptedServer, tmp_path: Path) -> None:
    clients, proxies = CertificateAuthority.generate("clients"), CertificateAuthority.generate("proxies")
    api.respond("POST", ACCESS_REVIEWS, access_review(True))
    presented = (proxies.issue_client_certificate("front"), tmp_path)
    async with secure_port(front_proxy_options(api, tmp_path, clients, proxies)) as server:
        assert (await server.get("/metrics", headers=FORWARDED, certificate=presented)).status == 200
    spec = api.requests[0].json["spec"]
    assert (spec["user"], spec["groups"]) == ("jane", ["operators", "system:authenticated"])
    assert spec["extra"] == {"reason/why": ["because"]}


async def test_request_headers_of_a_client_that_is_no_front_proxy_are_ignored(
    api: ScriptedServer, tmp_path: Path
) -> None:
    clients, proxies = CertificateAuthority.generate("clients"), CertificateAuthority.generate("proxies")
    api.respond("POST", ACCESS_REVIEWS, access_review(True))
    presented = (clients.issue_client_certificate("front"), tmp_path)
    async with secure_port(front_proxy_options(api, tmp_path, clients, proxies)) as server:
        await server.get("/metrics", headers=FORWARDED | {"X-Remote-Group": "system:masters"}, certificate=presented)
    assert api.requests[0].json["spec"]["user"] == "front"


async def test_the_authority_of_front_proxies_does_not_authenticate_users(api: ScriptedServer, tmp_path: Path) -> None:
    clients, proxies = CertificateAuthority.generate("clients"), CertificateAuthority.generate("proxies")
    presented = (proxies.issue_client_certificate("admin", ["system:masters"]), tmp_path)
    async with secure_port(front_proxy_options(api, tmp_path, clients, proxies)) as server:
        assert (await server.get("/configz", headers=FORWARDED, certificate=presented)).status == 401


async def test_a_denial_contains_the_reason_of_the_review(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("POST", ACCESS_REVIEWS, access_review(False, "not on Sundays"))
    async with secure_port(delegating_options(api, tmp_path)) as server:
        assert json.loads((await server.get("/metrics")).text)["message"].endswith("not on Sundays")


async def test_a_failed_lookup_that_is_not_tolerated_prevents_the_start(api: ScriptedServer, tmp_path: Path) -> None:
    api.respond("GET", CLUSTER_AUTHENTICATION, failure(403, "Forbidden"))
    options = delegating_options(api, tmp_path, skip_lookup=False, tolerate_lookup_failure=False)
    with pytest.raises(InputError, match="unable to load the authentication configuration"):
        async with secure_port(replace(options)):
            pass
