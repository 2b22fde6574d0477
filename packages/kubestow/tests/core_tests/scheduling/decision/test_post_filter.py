"""Which PostFilter plugins run about a pod that fits nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.interface import FilterRunner, PostFilterPlugin, PostFilterResult
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

ran: list[str] = []


class First(PostFilterPlugin):
    """Gives an answer."""

    name = "First"
    events_to_register = ()
    answer = SUCCESS

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        ran.append(self.name)
        return PostFilterResult(self.answer)


class Second(First):
    """Is not asked if the first one has decided."""

    name = "Second"
    answer = Status.unschedulable("nor here")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Status.unschedulable("not here"), ["First", "Second"]),
        (SUCCESS, ["First"]),
        (Status.error("broken"), ["First"]),
        (Status.unresolvable("nowhere"), ["First"]),
    ],
    ids=["unschedulable", "success", "error", "unresolvable"],
)
@pytest.mark.parametrize("extenders", [(), (ScriptedExtender("filter"),)], ids=["without extenders", "with extenders"])
def test_any_answer_but_unschedulable_ends_the_extension_point(
    answer: Status, expected: list[str], extenders: Sequence[ScriptedExtender]
) -> None:
    ran.clear()
    first = type("First", (First,), {"answer": answer})
    post_filter: dict[str, Any] = {"enabled": [{"name": "First"}, {"name": "Second"}], "disabled": [{"name": "*"}]}

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("too-big", cpu="64"))
        await harness.settle()
        assert ran == expected

    profiles = [{"plugins": {"postFilter": post_filter}}]
    in_virtual_time(scenario, node("n"), plugins=[first, Second], profiles=profiles, extenders=extenders)
