"""Whatever is received for and however it is answered: the server ends as if everything had been written one by one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import PodCondition
from kubestow.framework.status import Status
from kubestow.scheduling.ports import ObjectReference, PodStatusPatch
from kubestow.testing import pod
from kubestow.testing.virtual_time import run
from tests.scheduling.writes.harness import (
    DispatcherHarness,
    Response,
    ScriptedCluster,
    api_error,
    status_patch,
    unreachable,
)

_NAMES = ("p", "q")
#: A request fails no more often in succession than a write is tried again.
_FAILURES = 3


@dataclass(frozen=True)
class Says:
    """A status is to be patched."""

    name: str
    patch: PodStatusPatch


@dataclass(frozen=True)
class Binds:
    """A pod is to be bound."""

    name: str


@dataclass(frozen=True)
class Evicts:
    """A pod is to be evicted."""

    name: str


@dataclass(frozen=True)
class Passes:
    """Time passes, and the watch may catch up."""

    seconds: float
    watch: bool


Step = Says | Binds | Evicts | Passes

names = st.sampled_from(("p", "p", "p", "q"))
messages = st.lists(st.sampled_from(("x", "y")), max_size=2)
patches = st.builds(
    lambda messages, nominated: status_patch(*messages, nominated=nominated),
    messages,
    st.sampled_from((None, "", "a")),
)
times = st.sampled_from((0.0, 0.5, 1.0, 3.0))
steps = st.one_of(
    st.builds(Says, names, patches),
    st.builds(Says, names, patches),
    st.builds(Says, names, patches),
    st.builds(Passes, times, st.booleans()),
    st.builds(Passes, times, st.just(False)),
    st.builds(Binds, names),
    st.builds(Evicts, names),
)
failures = st.one_of(
    st.builds(unreachable),
    st.builds(api_error, st.sampled_from((409, 500, 503))),
    st.builds(api_error, st.just(429), retry_after=times),
)
responses = st.one_of(
    st.builds(Response, times),
    st.builds(Response, times, failures),
    st.builds(Response, times, st.one_of(st.builds(unreachable), st.builds(api_error, st.just(500))), st.just(True)),
)


class Capricious(ScriptedCluster):
    """Fails a pod's requests three times in succession at most, and minds what is status_patch of a pod that is bound."""

    def __init__(self, responses: Sequence[Response]) -> None:
        super().__init__()
        self._moods = list(responses)
        self._failed: Counter[str] = Counter()

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        self._be_moody(pod)
        await super().bind(pod, node_name)

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        self._be_moody(pod)
        is_eviction = [condition.type for condition in patch.conditions] == ["DisruptionTarget"]
        if self.pod(pod.name).spec.node_name and not is_eviction:
            self.violations.append("a binding has overtaken a status")
        await super().patch_pod_status(pod, patch)

    async def delete_pod(self, pod: ObjectReference) -> None:
        self._be_moody(pod)
        await super().delete_pod(pod)

    def _be_moody(self, pod: ObjectReference) -> None:
        mood = self._moods.pop(0) if self._moods else Response()
        self._failed[pod.uid] = 0 if mood.failure is None else self._failed[pod.uid] + 1
        if self._failed[pod.uid] > _FAILURES:
            mood, self._failed[pod.uid] = Response(mood.seconds), 0
        self.responses = [mood]


@dataclass
class Course:
    """What was received for, in order, with the tasks that bind and evict."""

    harness: DispatcherHarness
    says: list[Says] = field(default_factory=list)
    bindings: dict[str, asyncio.Task[Status]] = field(default_factory=dict)
    evictions: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def take(self, step: Step, references: dict[str, ObjectReference]) -> None:
        """Ask for one thing, if whoever schedules would: nothing is received of pods that are bound or being evicted."""
        if isinstance(step, Passes):
            await asyncio.sleep(step.seconds)
            if step.watch:
                self.harness.sync_watch()
        elif step.name not in self.evictions:
            binding, pod = self.bindings.get(step.name), references[step.name]
            is_bound = binding is not None and binding.done() and binding.result().ok
            if isinstance(step, Evicts):
                self.evictions[step.name] = self.harness.start_eviction(pod)
            elif isinstance(step, Says) and not is_bound:
                self.says.append(step)
                self.harness.dispatcher.patch_status(pod, step.patch)
            elif isinstance(step, Binds) and (binding is None or (binding.done() and not is_bound)):
                self.bindings[step.name] = self.harness.start_binding(pod)

    async def over(self) -> None:
        """Wait for the end of everything."""
        for ending in (*self.bindings.values(), *self.evictions.values()):
            await ending
        await self.harness.drain()

    def check(self, name: str) -> None:
        """Hold a pod to what comes of writing one by one."""
        there = {pod.metadata.name: pod for pod in self.harness.server.pods()}
        assert (name in there) == (name not in self.evictions)
        bound = name in self.bindings and self.bindings[name].result().ok
        assert self.harness.server.bindings.count((f"default/{name}", "n")) == bound
        if name not in there or bound:
            return
        conditions: dict[str, PodCondition] = {}
        nomination = ""
        for step in self.says:
            if step.name == name:
                conditions |= {condition.type: condition for condition in step.patch.conditions}
                nomination = nomination if step.patch.nominated_node_name is None else step.patch.nominated_node_name
        status = there[name].status
        assert {condition.type: condition for condition in status.conditions} == conditions
        assert status.nominated_node_name == nomination


@settings(max_examples=300)
@given(st.lists(steps, min_size=5, max_size=20), st.lists(responses, max_size=15))
def test_the_server_ends_in_the_state_that_sequential_writes_produce(
    steps: list[Step], responses: list[Response]
) -> None:
    async def scenario() -> None:
        harness = DispatcherHarness(Capricious(responses))
        references = {name: harness.create_pod(pod(name)) for name in _NAMES}
        course = Course(harness)
        for step in steps:
            await course.take(step, references)
        await course.over()
        assert harness.server.violations == []
        for name in _NAMES:
            course.check(name)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())
