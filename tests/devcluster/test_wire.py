"""The recordings of a real kube-apiserver, replayed: same status, same body but for uids, times and versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubestow.devcluster.cluster import DevCluster
from tests.devcluster.wire import Exchange, alike, folder, printed, scenario, without_heartbeats
from tests.devcluster.wire_clusters import prepare
from tests.devcluster.wire_differences import HEADERS, discovery_problems, reason, table
from tests.devcluster.wire_player import Played, Player

needs_recordings = pytest.mark.skipif(folder() is None, reason="the recordings (../shared/wire) are not there")

#: Recordings that stand for themselves, and those that followed each other on one server.
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
    """The exchanges in their order. Watches that were shown whole when they ended began before everything else."""
    exchanges = [exchange for name in SESSIONS[session] for exchange in scenario(name)]
    return sorted(exchanges, key=lambda one: one.scenario != "scheduler-stop" or one.events is None)


def played(exchange: Exchange) -> bool:
    """A difference in what a request does is not played; one in how it is answered is."""
    is_reading = exchange.method == "GET"
    return not reason(exchange) or (exchange.scenario.startswith("pods-create") and not is_reading)


def check(one: Played) -> None:
    exchange = one.exchange
    there = exchange.answer if exchange.events is None else exchange.events
    if exchange.events is not None and exchange.end != "server":
        there = without_heartbeats(exchange.events)
    assert one.status == exchange.status, f"{exchange}: {one.answer}"
    if exchange.partial:
        return
    problems = discovery_problems(there, one.answer)
    if problems is None:
        assert alike(one.answer) == alike(there), str(exchange)
    assert not problems, f"{exchange}: {problems}"
    for header in HEADERS:
        assert one.headers.get(header) == exchange.answer_headers.get(header), f"{exchange}: {header}"


@needs_recordings
@pytest.mark.parametrize("session", SESSIONS)
async def test_a_recorded_session_is_answered_alike(session: str, server: DevCluster) -> None:
    await prepare(server, session)
    exchanges = [exchange for exchange in recorded(session) if played(exchange)]
    compared = 0
    async for one in Player(server).play(exchanges):
        if not reason(one.exchange):
            check(one)
            compared += 1
    assert compared


@needs_recordings
def test_every_recording_is_played() -> None:
    where = folder()
    assert where is not None
    sessions = {name for names in SESSIONS.values() for name in names}
    assert sessions == {path.stem for path in where.glob("*.jsonl")}


def test_the_docs_have_the_table_of_differences() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "apiserver.md"
    assert table() in page.read_text(encoding="utf-8")
