"""The endpoints of a running secure port: health checks, metrics, z-pages, debug."""

from __future__ import annotations

import asyncio
import json

import cbor2
import pytest

from core_tests.observability.harness import samples
from core_tests.serving.harness import secure_port
from kubestow.config import FeatureGates
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import running_scheduler


async def test_health_checks_are_listed_if_verbose() -> None:
    async with secure_port(document={"leaderElection": {"leaderElect": False}}) as server:
        assert (await server.get("/healthz")).text == "ok"
        assert (await server.get("/healthz?verbose")).text == "[+]ping ok\n[+]event-loop ok\nhealthz check passed\n"
        assert (await server.get("/livez/ping")).text == "ok"
        assert (await server.get("/livez/nothing")).status == 404


async def test_a_process_with_unsynced_caches_is_alive_and_not_ready() -> None:
    async with secure_port() as server:
        assert (await server.get("/livez")).status == 200
        unready = await server.get("/readyz")
        assert unready.status == 500
        assert unready.text == (
            "[+]leaderElection ok\n[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\n"
            "[+]watches ok\n[+]event-loop ok\nreadyz check failed\n"
        )
        check = await server.get("/readyz/sched-handler-sync")
        assert (check.status, check.text) == (500, "internal server error: handlers are not fully synchronized\n")


async def test_checks_can_be_excluded() -> None:
    async with secure_port() as server:
        reply = await server.get("/readyz?verbose&exclude=sched-handler-sync&exclude=nothing")
        assert reply.status == 200
        assert "[+]sched-handler-sync excluded: ok\n" in reply.text
        assert 'warn: some health checks cannot be excluded: no matches for "nothing"\n' in reply.text


async def test_a_scheduler_with_synced_caches_is_ready() -> None:
    async with secure_port() as server, running_scheduler([node("n")]) as harness:
        server.observability.attach(harness.scheduler)
        assert (await server.get("/readyz")).text == "ok"


@pytest.mark.parametrize(("seconds", "status"), [(0.0, 200), (59.0, 200), (61.0, 500)])
async def test_a_scheduler_with_a_broken_watch_is_not_ready(seconds: float, status: int) -> None:
    async with secure_port() as server, running_scheduler([node("n")]) as harness:
        server.observability.attach(harness.scheduler)
        server.observability.broken_watches = lambda: {"pods": 0.0, "resourceclaims.resource.k8s.io": seconds}
        assert (await server.get("/livez")).status == 200
        assert (await server.get("/readyz")).status == status
        metric = f'kubestow_watch_broken_seconds{{resource="resourceclaims.resource.k8s.io"}} {seconds}'
        assert metric in (await server.get("/metrics")).text
        if status == 500:
            reason = (await server.get("/readyz/watches")).text
            assert reason == "internal server error: resourceclaims.resource.k8s.io not read for 61 s\n"


async def test_a_process_that_is_shutting_down_is_alive_and_not_ready() -> None:
    async with secure_port() as server, running_scheduler([node("n")]) as harness:
        server.observability.attach(harness.scheduler)
        server.observability.is_shutting_down = lambda: True
        assert (await server.get("/livez")).status == 200
        assert "[-]shutdown failed" in (await server.get("/readyz")).text


async def test_metrics_are_exposed_in_the_prometheus_format_and_can_be_reset() -> None:
    async with secure_port() as server:
        scraped = await server.get("/metrics")
        assert scraped.headers["Content-Type"].startswith("text/plain; version=")
        assert ("scheduler_preemption_attempts_total", frozenset()) in samples(scraped.text.encode())
        assert (await server.get("/metrics", method="DELETE")).text == "metrics reset\n"
        assert (await server.get("/metrics", method="POST")).status == 405


async def test_health_checks_have_metrics() -> None:
    async with secure_port() as server:
        await server.get("/readyz")
        scraped = samples((await server.get("/metrics/slis")).text.encode())
    sync = {"name": "sched-handler-sync", "type": "readyz"}.items()
    assert scraped["kubernetes_healthcheck", frozenset(sync)] == 0
    assert scraped["kubernetes_healthchecks_total", frozenset({*sync, ("status", "error")})] == 1


async def test_pod_resource_metrics_need_a_scheduler() -> None:
    async with secure_port() as server:
        assert "kube_pod_resource_request{" not in (await server.get("/metrics/resources")).text
        async with running_scheduler([node("n"), pod("a", cpu="2", node="n")]) as harness:
            server.observability.attach(harness.scheduler)
            assert 'pod="a"' in (await server.get("/metrics/resources")).text


async def test_configz_redacts_secrets() -> None:
    extender = {
        "urlPrefix": "https://extender",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"certData": "Y2VydA==", "keyData": "c2VjcmV0", "caData": "Y2E="},
    }
    async with secure_port(document={"extenders": [extender]}) as server:
        page = (await server.get("/configz")).text
    component = json.loads(page)["componentconfig"]
    assert component["kind"] == "KubeSchedulerConfiguration"
    assert component["extenders"][0]["tlsConfig"]["keyData"] == "<redacted>"
    assert "c2VjcmV0" not in page


async def test_flagz_and_statusz_are_plain_text_by_default() -> None:
    async with secure_port() as server:
        flags = (await server.get("/flagz")).text.splitlines()
        assert flags[1] == "kube-scheduler flagz"
        assert flags[2].startswith("Warning: This endpoint is not meant to be machine parseable")
        assert "secure-port=10259" in flags
        status = (await server.get("/statusz")).text
        assert "Binary version: 1.36.2\nEmulation version: 1.36\nAPI server version: unknown\n" in status
        server.observability.server_version = "v1.36.1"
        assert "\nAPI server version: 1.36.1\n" in (await server.get("/statusz")).text
        assert "Paths: /configz /flagz /healthz /livez /metrics /readyz\n" in status


@pytest.mark.parametrize("kind", ["Flagz", "Statusz"])
async def test_flagz_and_statusz_are_objects_on_request(kind: str) -> None:
    accept = f"application/json;v=v1beta1;g=config.k8s.io;as={kind}"
    async with secure_port() as server:
        page = json.loads((await server.get(f"/{kind.lower()}", headers={"Accept": accept})).text)
        assert (page["kind"], page["apiVersion"]) == (kind, "config.k8s.io/v1beta1")
        assert (await server.get(f"/{kind.lower()}", headers={"Accept": "image/png"})).status == 406


@pytest.mark.parametrize("kind", ["Flagz", "Statusz"])
async def test_flagz_and_statusz_are_self_described_cbor_on_request(kind: str) -> None:
    parameters = f"v=v1beta1;g=config.k8s.io;as={kind}"
    async with secure_port() as server:
        path = f"/{kind.lower()}"
        response = await server.get(path, headers={"Accept": f"application/cbor;{parameters}"})
        assert response.headers["Content-Type"] == "application/cbor"
        tag, page = response.body[:3], cbor2.loads(response.body[3:])
        in_json = json.loads((await server.get(path, headers={"Accept": f"application/json;{parameters}"})).text)
        assert tag == b"\xd9\xd9\xf7"
        assert {**page, "uptimeSeconds": 0} == {**in_json, "uptimeSeconds": 0}
        assert (await server.get(path, headers={"Accept": "application/cbor"})).status == 406


async def test_a_z_page_with_a_disabled_gate_is_not_found() -> None:
    async with secure_port(gates=FeatureGates({"ComponentFlagz": False})) as server:
        assert (await server.get("/flagz")).status == 404


async def test_pprof_is_not_found() -> None:
    async with secure_port() as server:
        reply = await server.get("/debug/pprof/heap")
        assert (reply.status, "pprof profiles are not available" in reply.text) == (404, True)


async def test_debug_endpoints_are_unavailable_without_a_scheduler() -> None:
    async with secure_port() as server:
        assert (await server.get("/debug/queue")).status == 503


async def test_endpoints_respond_while_pods_are_scheduled() -> None:
    async with (
        secure_port() as server,
        running_scheduler([node("n")], observer=server.observability.observer) as harness,
    ):
        server.observability.attach(harness.scheduler)
        for number in range(50):
            harness.cluster.put(pod(f"p{number}", cpu="1m"))
        replies = await asyncio.gather(
            *(server.get(path) for path in ("/metrics", "/debug/queue", "/readyz", "/debug/cache"))
        )
        assert [reply.status for reply in replies] == [200] * 4
