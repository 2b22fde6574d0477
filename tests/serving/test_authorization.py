"""Who is let in: by certificate, by token, through a front proxy, or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from kubestow.certificates import Authority
from kubestow.devcluster.apiserver.requests import ADMIN, User
from kubestow.devcluster.apiserver.server import APIServerOptions
from kubestow.devcluster.cluster import DevCluster
from kubestow.serving.options import AuthenticationOptions, AuthorizationOptions, ServingOptions
from tests.client.clocks import LeapingClock
from tests.client.kubeconfigs import kubeconfig, save
from tests.client.scripted_server import ScriptedServer, answer, disconnect, failure, running
from tests.serving.ports import ACCESS, TOKENS, TRUST, behind, belongs_to, may, port, raw


@pytest.fixture
async def api() -> AsyncIterator[ScriptedServer]:
    async with running() as scripted:
        yield scripted


async def test_health_is_for_everybody_and_metrics_are_not(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", ACCESS, may(False))
    async with port(behind(api, tmp_path)) as at:
        assert (await at.get("/livez")).status == 200
        refused = await at.get("/metrics")
    assert refused.status == 403
    assert json.loads(refused.text) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'forbidden: User "system:anonymous" cannot get path "/metrics"',
        "reason": "Forbidden",
        "code": 403,
    }
    assert api.asked[0].json["spec"] == {
        "user": "system:anonymous",
        "groups": ["system:unauthenticated"],
        "uid": "",
        "extra": {},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_a_token_is_reviewed_and_then_the_access_of_its_user(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", TOKENS, belongs_to("prometheus", "monitoring"))
    api.answers("POST", ACCESS, may(True))
    async with port(behind(api, tmp_path)) as at:
        assert (await at.get("/metrics", token="good")).status == 200
    assert api.asked[0].json["spec"] == {"token": "good"}
    assert api.asked[1].json["spec"]["groups"] == ["monitoring", "system:authenticated"]


async def test_answers_of_the_api_server_hold_for_a_while(api: ScriptedServer, tmp_path: Path) -> None:
    clock = LeapingClock()
    api.answers("POST", TOKENS, belongs_to("prometheus"), belongs_to("prometheus"))
    api.answers("POST", ACCESS, may(True), may(False))
    async with port(behind(api, tmp_path), clock=_Still(clock)) as at:
        for _ in range(3):
            assert (await at.get("/metrics", token="good")).status == 200
        assert len(api.asked) == 2
        clock.seconds += 11
        assert (await at.get("/metrics", token="good")).status == 403
        assert len(api.asked) == 4


class _Still(LeapingClock):
    """Another clock's time, on which nobody who sleeps makes it leap."""

    def __init__(self, other: LeapingClock) -> None:
        super().__init__()
        self._other = other

    def monotonic(self) -> float:
        return self._other.seconds

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.get_running_loop().create_future()


async def test_a_token_that_is_nobodys_is_401_even_for_open_paths(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", TOKENS, answer(201, {"status": {"authenticated": False, "error": "expired"}}))
    async with port(behind(api, tmp_path)) as at:
        refused = await at.get("/healthz", token="bad")
    assert refused.status == 401
    assert json.loads(refused.text)["reason"] == "Unauthorized"


@pytest.mark.parametrize("trouble", [failure(403, "Forbidden"), disconnect, answer(201, b"gibberish")])
async def test_an_api_server_in_trouble_lets_nobody_in(api: ScriptedServer, tmp_path: Path, trouble: object) -> None:
    api.answers("POST", TOKENS, trouble)  # type: ignore[arg-type]
    api.answers("POST", ACCESS, trouble)  # type: ignore[arg-type]
    async with port(behind(api, tmp_path)) as at:
        assert (await at.get("/metrics", token="any")).status == 401
        refused = await at.get("/metrics")
    assert refused.status == 500
    assert "Traceback" not in refused.text


async def test_a_token_that_is_no_text_is_nobodys(api: ScriptedServer, tmp_path: Path) -> None:
    async with port(behind(api, tmp_path)) as at:
        said = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer \xff\xfe\r\n\r\n"
        assert b" 401 " in (await raw(at, said)).splitlines()[0]
    assert api.asked == []


async def test_users_of_the_embedded_api_server_are_let_in(tmp_path: Path) -> None:
    known = {"secret": User("prometheus", ("monitoring", "system:authenticated")), "own": ADMIN}
    async with DevCluster(apiserver=APIServerOptions(tokens=known)) as api:
        named = save(tmp_path, kubeconfig(api.url, token="own"))
        options = ServingOptions(
            address="127.0.0.1",
            port=0,
            authentication=AuthenticationOptions(kubeconfig=named),
            authorization=AuthorizationOptions(kubeconfig=named),
        )
        async with port(options) as at:
            told = [(await at.get("/metrics", token=token)).status for token in ("secret", "wrong", "")]
    assert told == [200, 401, 403]


async def test_without_anybody_to_ask_only_open_paths_are_served() -> None:
    async with port(ServingOptions(address="127.0.0.1", port=0)) as at:
        assert (await at.get("/readyz?exclude=sched-handler-sync")).status == 200
        assert (await at.get("/metrics")).status == 403
        assert (await at.get("/metrics", token="any")).status == 401


async def test_open_paths_are_compared_whole() -> None:
    options = ServingOptions(
        address="127.0.0.1", port=0, authorization=AuthorizationOptions(always_allow_paths=("/healthz", "/livez/*"))
    )
    async with port(options) as at:
        assert (await at.get("/livez/ping")).status == 200
        assert (await at.get("/healthz/leaderElection")).status == 403
        assert (await at.get("/livez/%2e%2e/metrics")).status in (403, 404)
        assert (await at.get("/livez/..%2fmetrics")).status == 404


async def test_a_client_certificate_names_user_and_groups(api: ScriptedServer, tmp_path: Path) -> None:
    authority = Authority.make("cluster")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    api.answers("POST", ACCESS, may(True))
    shown = (authority.for_client("jane", ["operators"]), tmp_path)
    async with port(behind(api, tmp_path, client_ca=tmp_path / "ca.crt")) as at:
        assert (await at.get("/metrics", certificate=shown)).status == 200
    assert api.asked[0].json["spec"]["user"] == "jane"
    assert api.asked[0].json["spec"]["groups"] == ["operators", "system:authenticated"]


async def test_masters_may_everything_and_nobody_is_asked(api: ScriptedServer, tmp_path: Path) -> None:
    authority = Authority.make("cluster")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    shown = (authority.for_client("admin", ["system:masters"]), tmp_path)
    async with port(behind(api, tmp_path, client_ca=tmp_path / "ca.crt")) as at:
        assert (await at.get("/configz", certificate=shown)).status == 200
    assert api.asked == []


async def test_a_certificate_of_another_authority_gets_no_connection(api: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(Authority.make("cluster").certificate)
    shown = (Authority.make("somebody").for_client("admin", ["system:masters"]), tmp_path)
    async with port(behind(api, tmp_path, client_ca=tmp_path / "ca.crt")) as at:
        with pytest.raises(aiohttp.ClientError):
            await at.get("/configz", certificate=shown)
        assert (await at.get("/livez")).status == 200


async def test_the_cluster_says_whose_certificates_are_believed(api: ScriptedServer, tmp_path: Path) -> None:
    authority = Authority.make("cluster")
    api.answers("GET", TRUST, answer(200, {"data": {"client-ca-file": authority.certificate.decode()}}))
    shown = (authority.for_client("admin", ["system:masters"]), tmp_path)
    options = behind(api, tmp_path, skip_lookup=False, tolerate_lookup_failure=False)
    async with port(options) as at:
        assert (await at.get("/configz", certificate=shown)).status == 200


PROXIED = {"X-Remote-User": "jane", "X-Remote-Group": "operators", "X-Remote-Extra-Reason%2Fwhy": "because"}


def behind_proxies(api: ScriptedServer, directory: Path, clients: Authority, proxies: Authority) -> ServingOptions:
    (directory / "ca.crt").write_bytes(clients.certificate)
    (directory / "proxy-ca.crt").write_bytes(proxies.certificate)
    return behind(
        api,
        directory,
        client_ca=directory / "ca.crt",
        requestheader_ca=directory / "proxy-ca.crt",
        requestheader_names=("front",),
    )


async def test_a_front_proxy_speaks_for_others(api: ScriptedServer, tmp_path: Path) -> None:
    clients, proxies = Authority.make("clients"), Authority.make("proxies")
    api.answers("POST", ACCESS, may(True))
    shown = (proxies.for_client("front"), tmp_path)
    async with port(behind_proxies(api, tmp_path, clients, proxies)) as at:
        assert (await at.get("/metrics", headers=PROXIED, certificate=shown)).status == 200
    spec = api.asked[0].json["spec"]
    assert (spec["user"], spec["groups"]) == ("jane", ["operators", "system:authenticated"])
    assert spec["extra"] == {"reason/why": ["because"]}


async def test_what_a_client_says_of_others_counts_for_nothing(api: ScriptedServer, tmp_path: Path) -> None:
    clients, proxies = Authority.make("clients"), Authority.make("proxies")
    api.answers("POST", ACCESS, may(True))
    shown = (clients.for_client("front"), tmp_path)
    async with port(behind_proxies(api, tmp_path, clients, proxies)) as at:
        await at.get("/metrics", headers=PROXIED | {"X-Remote-Group": "system:masters"}, certificate=shown)
    assert api.asked[0].json["spec"]["user"] == "front"


async def test_an_authority_of_proxies_makes_no_users(api: ScriptedServer, tmp_path: Path) -> None:
    clients, proxies = Authority.make("clients"), Authority.make("proxies")
    shown = (proxies.for_client("admin", ["system:masters"]), tmp_path)
    async with port(behind_proxies(api, tmp_path, clients, proxies)) as at:
        assert (await at.get("/configz", headers=PROXIED, certificate=shown)).status == 401


async def test_a_denial_says_why_if_the_api_server_does(api: ScriptedServer, tmp_path: Path) -> None:
    api.answers("POST", ACCESS, may(False, "not on Sundays"))
    async with port(behind(api, tmp_path)) as at:
        assert json.loads((await at.get("/metrics")).text)["message"].endswith("not on Sundays")


async def test_a_lookup_that_must_not_fail_ends_the_start(api: ScriptedServer, tmp_path: Path) -> None:
    from kubestow.errors import InputError

    api.answers("GET", TRUST, failure(403, "Forbidden"))
    options = behind(api, tmp_path, skip_lookup=False, tolerate_lookup_failure=False)
    with pytest.raises(InputError, match="whom to trust"):
        async with port(replace(options)):
            pass
