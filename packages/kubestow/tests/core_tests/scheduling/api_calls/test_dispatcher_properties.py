"""For random requests and responses, the server ends in the state that sequential writes produce."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.scheduling.api_calls.harness import (
    DispatcherHarness,
    Response,
    ScriptedCluster,
    api_error,
    status_patch,
    unreachable,
)
from kubestow.api.core import PodCondition
from kubestow.framework.status import Status
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch
from kubestow.testing import pod
from kubestow.testing.virtual_time import run

_NAMES = ("p", "q")
#: Consecutive failures of one pod's requests: as many as a write is retried.
_FAILURES = 3


@dataclass(frozen=True)
class PatchStatus:
    """Patch a status."""

    name: str
    patch: PodStatusPatch


@dataclass(frozen=True)
class Bind:
    """Bind a pod."""

    name: str


@dataclass(frozen=True)
class Evict:
    """Evict a pod."""

    name: str


@dataclass(frozen=True)
class Advance:
    """Advance the clock, and sync the watch if ``watch`` is set."""

    seconds: float
    watch: bool


Step = PatchStatus | Bind | Evict | Advance

names = st.sampled_from(("p", "p", "p", "q"))
messages = st.lists(st.sampled_from(("x", "y")), max_size=2)
patches = st.builds(
    lambda messages, nominated: status_patch(*messages, nominated=nominated),
    messages,
    st.sampled_from((None, "", "a")),
)
times = st.sampled_from((0.0, 0.5, 1.0, 3.0))
steps = st.one_of(
    st.builds(PatchStatus, names, patches),
    st.builds(PatchStatus, names, patches),
    st.builds(PatchStatus, names, patches),
    st.builds(Advance, times, st.booleans()),
    st.builds(Advance, times, st.just(False)),
    st.builds(Bind, names),
    st.builds(Evict, names),
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


class UnreliableCluster(ScriptedCluster):
    """Fails at most three consecutive requests of a pod, and rejects patches of bound pods as violations."""

    def __init__(self, responses: Sequence[Response]) -> None:
        super().__init__()
        self._script = list(responses)
        self._failed: Counter[str] = Counter()

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        self._script_response(pod)
        await super().bind(pod, node_name)

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        self._script_response(pod)
        is_eviction = [condition.type for condition in patch.conditions] == ["DisruptionTarget"]
        if self.pod(pod.name).spec.node_name and not is_eviction:
            self.violations.append("a binding has overtaken a status")
        await super().patch_pod_status(pod, patch)

    async def delete_pod(self, pod: ObjectReference) -> None:
        self._script_response(pod)
        await super().delete_pod(pod)

    def _script_response(self, pod: ObjectReference) -> None:
        response = self._script.pop(0) if self._script else Response()
        self._failed[pod.uid] = 0 if response.failure is None else self._failed[pod.uid] + 1
        if self._failed[pod.uid] > _FAILURES:
            response, self._failed[pod.uid] = Response(response.seconds), 0
        self.responses = [response]


@dataclass
class Execution:
    """The executed steps, with the tasks that bind and evict."""

    harness: DispatcherHarness
    patches: list[PatchStatus] = field(default_factory=list)
    bindings: dict[str, asyncio.Task[Status]] = field(default_factory=dict)
    evictions: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    async def execute(self, step: Step, references: dict[str, ObjectReference]) -> None:
        """Execute one step, unless the pod is bound or being evicted already."""
        if isinstance(step, Advance):
            await asyncio.sleep(step.seconds)
            if step.watch:
                self.harness.sync_watch()
        elif step.name not in self.evictions:
            binding, pod = self.bindings.get(step.name), references[step.name]
            is_bound = binding is not None and binding.done() and binding.result().ok
            if isinstance(step, Evict):
                self.evictions[step.name] = self.harness.start_eviction(pod)
            elif isinstance(step, PatchStatus) and not is_bound:
                self.patches.append(step)
                self.harness.dispatcher.patch_status(pod, step.patch)
            elif isinstance(step, Bind) and (binding is None or (binding.done() and not is_bound)):
                self.bindings[step.name] = self.harness.start_binding(pod)

    async def finish(self) -> None:
        """Wait until all bindings, evictions and patches are done."""
        for task in (*self.bindings.values(), *self.evictions.values()):
            await task
        await self.harness.drain()

    def check(self, name: str) -> None:
        """Compare a pod with the result of sequential writes."""
        current = {pod.metadata.name: pod for pod in self.harness.server.pods()}
        assert (name in current) == (name not in self.evictions)
        bound = name in self.bindings and self.bindings[name].result().ok
        assert self.harness.server.bindings.count((f"default/{name}", "n")) == bound
        if name not in current or bound:
            return
        conditions: dict[str, PodCondition] = {}
        nomination = ""
        for step in self.patches:
            if step.name == name:
                conditions |= {condition.type: condition for condition in step.patch.conditions}
                nomination = nomination if step.patch.nominated_node_name is None else step.patch.nominated_node_name
        status = current[name].status
        assert {condition.type: condition for condition in status.conditions} == conditions
        assert status.nominated_node_name == nomination


@settings(max_examples=300)
@given(st.lists(steps, min_size=5, max_size=20), st.lists(responses, max_size=15))
def test_the_server_ends_in_the_state_that_sequential_writes_produce(
    steps: list[Step], responses: list[Response]
) -> None:
    async def scenario() -> None:
        harness = DispatcherHarness(UnreliableCluster(responses))
        references = {name: harness.create_pod(pod(name)) for name in _NAMES}
        execution = Execution(harness)
        for step in steps:
            await execution.execute(step, references)
        await execution.finish()
        assert harness.server.violations == []
        for name in _NAMES:
            execution.check(name)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())
