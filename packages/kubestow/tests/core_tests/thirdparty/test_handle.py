"""What the handle offers a plugin of a running scheduler."""

from __future__ import annotations

import pytest

from kubestow.cluster.nodes.node_info import NodeInfos
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


class Holds(PermitPlugin):
    """Lets pods wait until the test decides."""

    name = "Holds"
    events_to_register = ()
    built: list[Holds] = []

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        type(self).built.append(self)
        return Permission.wait(600)


def test_a_plugin_finds_waiting_pods_nodes_extenders_and_gates_and_records_events() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", cpu="1"))
        await harness.settle()
        handle = Holds.built[-1].handle
        waiting = handle.waiting_pod("uid-default-p")
        assert waiting is not None and waiting.info.name == "p"
        assert handle.waiting_pod("another") is None
        (info,) = NodeInfos(handle.cluster.all_nodes())
        assert (info.name, info.requested.milli_cpu) == ("n", 1000)
        assert list(handle.extenders) == [] and not handle.feature_enabled("GangScheduling")
        handle.record(waiting.info, reason="Held", action="Waiting", note="held", event_type="Warning")
        with pytest.raises(APIError):
            await handle.request("GET", "/version")
        assert waiting.reject("Holds", "no")
        await harness.settle()
        assert [event.type for event in harness.cluster.events if event.reason == "Held"] == ["Warning"]
        assert not harness.node_of("p")

    profiles = [{"plugins": {"permit": {"enabled": [{"name": "Holds"}]}}}]
    in_virtual_time(scenario, node("n"), plugins=[Holds], profiles=profiles)
