"""Between a decision and a binding: work at PreBind, one after the other or at once, taken back, or never done."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import BindPlugin, Plugin, PostBindPlugin, PreBindPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.scheduling.ports import ObjectReference
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import Living, in_virtual_time


class Slow(PreBindPlugin):
    """Takes ten seconds."""

    name = "Slow"
    events_to_register = ()

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(10)


class Slower(Slow):
    name = "Slower"


class Willing(Slow):
    name = "Willing"
    parallel = True


class WillingToo(Slow):
    name = "WillingToo"
    parallel = True


class Stuck(PreBindPlugin):
    """Never answers for pods that say so."""

    name = "Stuck"
    events_to_register = ()
    time_limit = 100.0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(1e9 if pod.metadata.labels.get("stuck") else 0.0)


def enabled(*plugins: type[Plugin]) -> dict[str, Any]:
    multi_point = {"enabled": [{"name": plugin.name} for plugin in plugins]}
    return {"plugins": plugins, "profiles": [{"plugins": {"multiPoint": multi_point}}]}


@pytest.mark.parametrize(
    ("plugins", "seconds"), [((Slow, Slower), 20), ((Willing, WillingToo), 10), ((Willing, Slow, WillingToo), 30)]
)
def test_only_neighbours_that_allow_it_work_at_the_same_time(plugins: tuple[type[Plugin], ...], seconds: int) -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.passes(seconds - 1)
        assert world.node_of("a") == ""
        await world.passes(2)
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n"), **enabled(*plugins))


def test_a_plugin_that_never_answers_holds_nobody_else_back_and_is_given_up_in_the_end() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("stuck", labels={"stuck": "yes"}))
        for number in range(50):
            world.cluster.put(pod(f"other-{number}"))
        await world.passes(1)
        assert len(world.cluster.bindings) == 50
        await world.passes(105)
        condition = world.cluster.condition("stuck")
        assert condition is not None
        assert "PreBind" in condition.message and "cancelled after its time limit of 100 s" in condition.message

    in_virtual_time(story, node("n"), **enabled(Stuck))


def test_a_victim_at_pre_bind_is_not_deleted_but_tried_again() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("low", cpu="4", labels={"stuck": "yes"}))
        await world.passes(1)
        world.cluster.put(pod("high", cpu="4", priority=100))
        await world.passes(20)
        assert world.node_of("high") == "n"
        assert {there.metadata.name for there in world.cluster.pods()} == {"low", "high"}
        notes = [event.note for event in world.cluster.events if event.regarding.name == "low"]
        assert any(note.endswith("(in kube-scheduler memory).") for note in notes)
        assert 'running PreBind plugin "Stuck": preempted by DefaultPreemption' in notes

    in_virtual_time(story, node("n", cpu="4"), **enabled(Stuck))


@pytest.mark.parametrize("on", [True, False])
def test_a_pod_that_has_work_to_do_before_it_is_bound_is_promised_its_node(
    on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config.FeatureGates, "enabled", lambda self, gate: on or "Expectation" not in gate)

    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.passes(5)
        assert world.cluster.pod("a").status.nominated_node_name == ("n" if on else "")

    in_virtual_time(story, node("n"), **enabled(Slow))


class Sluggish(MemoryCluster):
    """Statuses are written slowly."""

    async def patch_pod_status(self, pod: ObjectReference, patch: Any) -> None:
        await asyncio.sleep(30)
        await super().patch_pod_status(pod, patch)


def test_a_status_that_has_not_gone_out_yet_does_not_hold_up_a_binding() -> None:
    async def story(world: Living) -> None:
        for number in range(20):
            world.cluster.put(pod(f"too-big-{number}", cpu="64", priority=1))
        world.cluster.put(pod("late", cpu="8"))
        await world.passes(1)
        world.cluster.put(node("larger", cpu="8"))
        await world.passes(5)
        assert world.node_of("late") == "larger"

    in_virtual_time(story, node("n"), cluster=Sluggish())


class Leaning(PreBindPlugin, BindPlugin, PostBindPlugin):
    """Leans on work that somebody else gives up: at the step that the pod is named after."""

    name = "Leaning"
    events_to_register = ()

    async def _lean(self, pod: PodInfo, step: str) -> None:
        if pod.name == step:
            work = asyncio.create_task(asyncio.sleep(10))
            asyncio.get_running_loop().call_later(1, work.cancel)
            await work

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await self._lean(pod, "pre-bind")

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        await self._lean(pod, "bind")
        return Status.skip()

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await self._lean(pod, "post-bind")


@pytest.mark.parametrize(("step", "is_bound"), [("pre-bind", False), ("bind", False), ("post-bind", True)])
def test_a_plugin_whose_own_work_is_cancelled_has_failed(step: str, is_bound: bool) -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod(step))
        await world.passes(1.5)
        assert list(world.scheduler.cluster.assumed()) == []
        condition = world.cluster.condition(step)
        assert (condition is None) == is_bound
        assert condition is None or condition.message.endswith("a task that it awaited was cancelled")

    in_virtual_time(story, node("n"), **first_at_bind(Leaning))


def first_at_bind(plugin: type[Plugin]) -> dict[str, Any]:
    here, others = {"name": plugin.name}, [{"name": "DefaultBinder"}]
    at_bind = {"enabled": [here, *others], "disabled": others}
    return {
        "plugins": [plugin],
        "profiles": [{"plugins": {"preBind": {"enabled": [here]}, "bind": at_bind, "postBind": {"enabled": [here]}}}],
    }


class Fickle(PreBindPlugin):
    """Refuses a pod once, in the words of ``code``."""

    name = "Fickle"
    events_to_register = ()
    code = Code.UNSCHEDULABLE
    asked = 0

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.asked += 1
        return Status(self.code, ("not now",)) if self.asked == 1 else SUCCESS


@pytest.mark.parametrize("code", [Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING])
def test_a_pod_that_is_refused_before_it_is_bound_is_tried_again_after_a_backoff(
    code: Code, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fickle, "code", code)

    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.passes(5)
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n"), **enabled(Fickle))
