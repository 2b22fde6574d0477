"""What the endpoints say."""

from __future__ import annotations

import asyncio
import json

import pytest

from kubestow.config import FeatureGates
from kubestow.testing import node, pod
from kubestow.testing.living import living
from tests.observability.watched import samples
from tests.serving.ports import port


async def test_health_in_a_word_and_in_full() -> None:
    async with port(document={"leaderElection": {"leaderElect": False}}) as at:
        assert (await at.get("/healthz")).text == "ok"
        assert (await at.get("/healthz?verbose")).text == "[+]ping ok\nhealthz check passed\n"
        assert (await at.get("/livez/ping")).text == "ok"
        assert (await at.get("/livez/nothing")).status == 404


async def test_a_process_without_a_full_cache_is_alive_and_not_ready() -> None:
    async with port() as at:
        assert (await at.get("/livez")).status == 200
        unready = await at.get("/readyz")
        assert unready.status == 500
        assert unready.text == (
            "[+]leaderElection ok\n[+]shutdown ok\n[-]sched-handler-sync failed: reason withheld\nreadyz check failed\n"
        )
        one = await at.get("/readyz/sched-handler-sync")
        assert (one.status, one.text) == (500, "internal server error: handlers are not fully synchronized\n")


async def test_checks_can_be_left_out() -> None:
    async with port() as at:
        told = await at.get("/readyz?verbose&exclude=sched-handler-sync&exclude=nothing")
        assert told.status == 200
        assert "[+]sched-handler-sync excluded: ok\n" in told.text
        assert 'warn: some health checks cannot be excluded: no matches for "nothing"\n' in told.text


async def test_a_scheduler_whose_caches_are_full_is_ready() -> None:
    async with port() as at, living([node("n")]) as world:
        at.observability.attach(world.scheduler)
        assert (await at.get("/readyz")).text == "ok"


async def test_a_process_that_ends_is_alive_and_not_ready() -> None:
    async with port() as at, living([node("n")]) as world:
        at.observability.attach(world.scheduler)
        at.observability.is_ending = lambda: True
        assert (await at.get("/livez")).status == 200
        assert "[-]shutdown failed" in (await at.get("/readyz")).text


async def test_metrics_come_as_prometheus_reads_them() -> None:
    async with port() as at:
        scraped = await at.get("/metrics")
        assert scraped.headers["Content-Type"].startswith("text/plain; version=")
        assert ("scheduler_preemption_attempts_total", frozenset()) in samples(scraped.text.encode())
        assert (await at.get("/metrics", method="DELETE")).text == "metrics reset\n"
        assert (await at.get("/metrics", method="POST")).status == 405


async def test_health_checks_are_measured() -> None:
    async with port() as at:
        await at.get("/readyz")
        found = samples((await at.get("/metrics/slis")).text.encode())
    sync = {"name": "sched-handler-sync", "type": "readyz"}.items()
    assert found["kubernetes_healthcheck", frozenset(sync)] == 0
    assert found["kubernetes_healthchecks_total", frozenset({*sync, ("status", "error")})] == 1


async def test_resources_of_pods_need_a_scheduler() -> None:
    async with port() as at:
        assert "kube_pod_resource_request{" not in (await at.get("/metrics/resources")).text
        async with living([node("n"), pod("a", cpu="2", node="n")]) as world:
            at.observability.attach(world.scheduler)
            assert 'pod="a"' in (await at.get("/metrics/resources")).text


async def test_the_configuration_is_shown_without_its_secrets() -> None:
    extender = {
        "urlPrefix": "https://extender",
        "filterVerb": "filter",
        "enableHTTPS": True,
        "tlsConfig": {"certData": "Y2VydA==", "keyData": "c2VjcmV0", "caData": "Y2E="},
    }
    async with port(document={"extenders": [extender]}) as at:
        shown = (await at.get("/configz")).text
    component = json.loads(shown)["componentconfig"]
    assert component["kind"] == "KubeSchedulerConfiguration"
    assert component["extenders"][0]["tlsConfig"]["keyData"] == "<redacted>"
    assert "c2VjcmV0" not in shown


async def test_flags_and_status_are_text_for_people() -> None:
    async with port() as at:
        flags = (await at.get("/flagz")).text.splitlines()
        assert flags[1] == "kube-scheduler flagz"
        assert flags[2].startswith("Warning: This endpoint is not meant to be machine parseable")
        assert "secure-port=10259" in flags
        status = (await at.get("/statusz")).text
        assert "Binary version: 1.36.2\n" in status
        assert "Paths: /configz /flagz /healthz /livez /metrics /readyz\n" in status


@pytest.mark.parametrize("kind", ["Flagz", "Statusz"])
async def test_flags_and_status_are_objects_for_machines(kind: str) -> None:
    accept = f"application/json;v=v1beta1;g=config.k8s.io;as={kind}"
    async with port() as at:
        told = json.loads((await at.get(f"/{kind.lower()}", headers={"Accept": accept})).text)
        assert (told["kind"], told["apiVersion"]) == (kind, "config.k8s.io/v1beta1")
        assert (await at.get(f"/{kind.lower()}", headers={"Accept": "image/png"})).status == 406


async def test_a_page_whose_gate_is_off_is_not_there() -> None:
    async with port(gates=FeatureGates({"ComponentFlagz": False})) as at:
        assert (await at.get("/flagz")).status == 404


async def test_profiles_of_go_are_honestly_not_there() -> None:
    async with port() as at:
        told = await at.get("/debug/pprof/heap")
        assert (told.status, "pprof do not exist here" in told.text) == (404, True)


async def test_what_a_process_without_a_scheduler_cannot_tell() -> None:
    async with port() as at:
        assert (await at.get("/debug/queue")).status == 503


async def test_everything_is_answered_while_pods_are_scheduled() -> None:
    async with port() as at, living([node("n")], observer=at.observability.observer) as world:
        at.observability.attach(world.scheduler)
        for number in range(50):
            world.cluster.put(pod(f"p{number}", cpu="1m"))
        told = await asyncio.gather(*(at.get(path) for path in ("/metrics", "/debug/queue", "/readyz", "/debug/cache")))
        assert [reply.status for reply in told] == [200] * 4
