"""Replays the recordings of kube-apiserver: same status, same body apart from uids, times and resourceVersions."""

from __future__ import annotations

from pathlib import Path

import pytest

from core_tests.recordings import printed, scenarios
from devcluster_tests.wire.clusters import prepare
from devcluster_tests.wire.differences import HEADERS, difference, differences_table, discovery_problems
from devcluster_tests.wire.player import Player, Replayed
from devcluster_tests.wire.recordings import (
    Exchange,
    normalized,
    scenario,
    without_bookmarks,
)
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster

#: Session -> scenarios: most are recorded on their own, some one after the other on one server.
SESSIONS: dict[str, tuple[str, ...]] = {
    name: (name,)
    for name in (
        "binding",
        "delete-evict",
        "discovery",
        "errors",
        "events",
        "leases",
        "list-watch",
        "nodes",
        "patch",
        "pods-create",
        "pods-create-serviceaccount",
        "resourceclaims",
        "scheduler-startup-listwatch",
        "server",
        "tables",
        "volumes",
    )
}
SESSIONS["scheduler"] = (
    "scheduler-startup",
    "scheduler-bind",
    "scheduler-unschedulable",
    "scheduler-unblocked-by-node",
    "scheduler-gate",
    "scheduler-preemption",
    "scheduler-preemption-graceful",
    "scheduler-volume-binding",
    "scheduler-resourceclaim",
    "scheduler-stop",
)
SESSIONS["kubectl"] = tuple(f"kubectl-{command}" for command in printed())


def recorded(session: str) -> list[Exchange]:
    """The exchanges in order. Watches that were recorded when they ended started before all other requests."""
    exchanges = [exchange for name in SESSIONS[session] for exchange in scenario(name)]
    return sorted(exchanges, key=lambda one: one.scenario != "scheduler-stop" or one.response.events is None)


def is_replayed(exchange: Exchange) -> bool:
    """Exchanges that differ are not replayed, except creates that later requests depend on."""
    is_create = exchange.scenario.startswith("pods-create") and exchange.request.method != "GET"
    return not difference(exchange) or is_create


def check(replayed: Replayed) -> None:
    exchange, expected = replayed.exchange, replayed.exchange.response
    body = expected.body if expected.events is None else expected.events
    if expected.events is not None and expected.end != "server":
        body = without_bookmarks(expected.events)
    assert replayed.status == expected.status, f"{exchange}: {replayed.body}"
    if expected.is_partial:
        return
    problems = discovery_problems(body, replayed.body)
    if problems is None:
        assert normalized(replayed.body) == normalized(body), str(exchange)
    assert not problems, f"{exchange}: {problems}"
    for header in HEADERS:
        assert replayed.headers.get(header) == expected.headers.get(header), f"{exchange}: {header}"


@pytest.mark.parametrize("session", SESSIONS)
async def test_a_recorded_session_gets_the_same_responses(session: str) -> None:
    server = DevCluster(kubelets=False, apiserver=APIServerOptions(rbac=True))
    await prepare(server, session)
    exchanges = [exchange for exchange in recorded(session) if is_replayed(exchange)]
    compared = 0
    async for replayed in Player(server).play(exchanges):
        if not difference(replayed.exchange):
            check(replayed)
            compared += 1
    assert compared


def test_every_recording_is_replayed() -> None:
    assert sorted(name for names in SESSIONS.values() for name in names) == scenarios()


def test_the_documentation_has_the_table_of_differences() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "apiserver.md"
    assert differences_table() in page.read_text(encoding="utf-8")
