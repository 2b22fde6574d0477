"""What surrounds the schedulers of a run: a server that forgets, suspended processes, late nodes, claim templates."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubestow.api.resource import ResourceClaim
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.status import Code
from kubestow.rules.minors import DEFAULT_MINOR
from kubestow.scheduling.events.resources import NODES
from kubestow.testing import node, pod
from kubestow.testing.virtual_time import VirtualTimeLoop
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.event_loop import Freeze, frozen_with, run_frozen_with
from kubestow_lab.fault_simulation.marks import Mark
from kubestow_lab.fault_simulation.scenario import Part, draw
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import WAITS_FOR_NODE, ProvisioningPlugin
from kubestow_lab.fault_simulation.simulation import simulate
from kubestow_lab.fault_simulation.trace import Trace


def _server() -> SimulatedServer:
    clock: Any = SimpleNamespace(now=lambda: datetime(2026, 1, 1, tzinfo=UTC), monotonic=lambda: 0.0)
    return SimulatedServer(clock, Trace(clock))


def test_a_version_that_has_expired_stays_so_and_a_new_list_has_another() -> None:
    server = _server()
    before = server.version
    server.put(node("n"))
    assert not server.has_expired(NODES, before)
    server.expire(NODES, before)
    assert server.has_expired(NODES, before)
    assert not server.has_expired(NODES, server.version)


def test_the_newest_version_does_not_expire_because_a_new_list_would_have_it_again() -> None:
    server = _server()
    server.put(node("n"))
    server.expire(NODES, server.version)
    assert not server.has_expired(NODES, server.version)


def test_what_only_a_suspension_stops_goes_on_during_a_stall() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        stall, suspension = (Freeze(runner.get_loop()) for _ in range(2))

        async def seen() -> Freeze | None:
            return frozen_with.get()

        async def ask() -> tuple[Freeze | None, Freeze | None]:
            frozen_with.set(stall)
            return await run_frozen_with(suspension, seen()), await seen()

        assert runner.run(ask()) == (suspension, stall)


def test_a_freeze_is_over_and_has_been_within_the_time_since_its_end() -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        freeze = Freeze(runner.get_loop())
        assert not freeze.has_been_within(1000.0)
        freeze.stall(5.0, "")
        assert freeze.has_been_within(0.0)
        runner.run(asyncio.sleep(7.0))
        assert [freeze.has_been_within(seconds) for seconds in (0.0, 1.0, 3.0)] == [False, False, True]


def test_a_leader_that_is_suspended_for_longer_than_its_lease_lasts_breaks_no_rule() -> None:
    outcome = simulate(2, required=[Part.STALLS, Part.ELECTION])
    assert outcome.marks[Mark.SUSPENDED_PAST_LEASE] > 0
    assert outcome.violations == []


@pytest.mark.parametrize(("name", "code"), [("comes", Code.WAIT), ("n", Code.SUCCESS)])
def test_a_pod_waits_on_permit_for_a_node_that_does_not_exist(name: str, code: Code) -> None:
    handle: Any = SimpleNamespace(cluster=SimpleNamespace(nodes=SimpleNamespace(rows={"n": 0})))
    plugin = ProvisioningPlugin(None, handle)
    waiting: Any = pod("a", labels={WAITS_FOR_NODE: name})
    assert plugin.permit(CycleState(), waiting, "n").status.code is code


def test_claim_templates_come_with_devices_and_go_with_them() -> None:
    scenario, _ = draw(3, [Part.CLAIM_TEMPLATES])
    assert {Part.CLAIM_TEMPLATES, Part.DEVICES} <= scenario.parts
    assert scenario.minor == str(DEFAULT_MINOR)
    assert Part.CLAIM_TEMPLATES not in scenario.without(Part.DEVICES).parts
    assert all(Part.DEVICES in parts for parts in _drawn_parts() if Part.CLAIM_TEMPLATES in parts)


def _drawn_parts() -> list[frozenset[Part]]:
    return [draw(seed)[0].parts for seed in range(200)]


def test_pods_of_a_template_have_claims_of_their_own() -> None:
    outcome = simulate(1, required=[Part.CLAIM_TEMPLATES])
    assert any(ResourceClaim.__name__ in line and "gpu-own-2" in line for line in cast("list[str]", outcome.trace))
    assert outcome.violations == []
