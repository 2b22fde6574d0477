"""The spans of scheduling attempts: their tree, what they say, and which attempts have any."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from itertools import count
from random import Random

import msgspec
import pytest

from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import PreBindPlugin
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import Code, Status
from kubestow.observability.observability import Observability
from kubestow.observability.tracing.attempt_record import (
    EXTENSION_POINT,
    PLUGIN_CALLS,
    AttemptRecord,
    ExtensionPoint,
    PluginCalls,
    Span,
    SpanKind,
    spans_of,
)
from kubestow.observability.tracing.attempt_tracer import AttemptTracer
from kubestow.process import WallClock
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.observer import Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import node, pod
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


class Traces:
    """The spans of a tracer."""

    def __init__(self, ratio: float = 1.0) -> None:
        self._records: list[Callable[[], AttemptRecord]] = []
        self._spans: list[Span] = []
        self._identifiers = count(1)
        self.tracer = AttemptTracer(ratio, self._records.append, random=Random(1))
        self.observer = Observability(WallClock(), config.FeatureGates(), also=[self.tracer]).observer

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        for take in self._records:
            record = msgspec.msgpack.decode(msgspec.msgpack.encode(take()), type=AttemptRecord)
            self._spans += spans_of(record, lambda: next(self._identifiers))
        self._records.clear()
        return self._spans

    def of_pod(self, name: str) -> list[Span]:
        """The spans of the last attempt at a pod, its root first."""
        root = [span for span in self.spans if span.attributes.get("k8s.pod.name") == name][-1]
        return [root, *(span for span in self.spans if span.trace_id == root.trace_id and span is not root)]


def paths(spans: list[Span]) -> set[str]:
    """The names of spans, each behind those of its parents."""
    by_id = {span.span_id: span for span in spans}

    def path(span: Span) -> str:
        return f"{path(by_id[span.parent_id])} > {span.name}" if span.parent_id else span.name

    return {path(span) for span in spans}


class TracedCluster(MemoryCluster):
    """A cluster whose bindings are requests of the tracer, as those of a client."""

    tracer: AttemptTracer

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        request = self.tracer.request_started("POST", "server:6443", f"/pods/{pod.name}/binding?x=1")
        await super().bind(pod, node_name)
        if request is not None:
            self.headers = request.traceparent
            request.ended("201")


class Failing(PreBindPlugin):
    """Fails for pods that are named so."""

    name = "Failing"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        return Status.error("no disk") if pod.key.endswith("/fails") else None


def test_the_trace_of_a_bound_pod_has_its_stages_plugins_and_requests() -> None:
    traces = Traces()
    cluster = TracedCluster()
    cluster.tracer = traces.tracer

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(pod("a", cpu="1"))
        await harness.settle()

    in_virtual_time(scenario, node("n", cpu="4"), node("m", cpu="4"), cluster=cluster, observer=traces.observer)
    spans = traces.of_pod("a")
    root = "schedule pod"
    assert paths(spans) >= {
        root,
        f"{root} > queue",
        f"{root} > scheduling cycle > Filter > Filter NodeResourcesFit",
        f"{root} > scheduling cycle > Score > Score NodeResourcesFit",
        f"{root} > scheduling cycle > Score > PreScore NodeResourcesFit",
        f"{root} > scheduling cycle > Reserve > Reserve VolumeBinding",
        f"{root} > binding cycle > Bind > Bind DefaultBinder",
        f"{root} > binding cycle > POST",
    }
    assert spans[0].attributes.items() >= {
        ("k8s.namespace.name", "default"),
        ("k8s.pod.name", "a"),
        ("k8s.pod.uid", "uid-default-a"),
        ("k8s.node.name", cluster.pod("a").spec.node_name),
        ("kubestow.attempt", 1),
        ("kubestow.feasible_nodes", 2),
        ("kubestow.result", "scheduled"),
    }
    [request] = [span for span in spans if span.kind is SpanKind.CLIENT]
    assert cluster.headers == f"00-{request.trace_id:032x}-{request.span_id:016x}-01"
    assert request.attributes == {
        "http.request.method": "POST",
        "http.response.status_code": 201,
        "server.address": "server:6443",
        "url.path": "/pods/a/binding",
    }
    assert all(span.error is None and span.start <= span.end for span in spans)
    assert len({span.span_id for span in spans}) == len(spans)


def test_each_failed_attempt_has_a_trace_that_says_why() -> None:
    traces = Traces()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("large", cpu="100"))
        harness.cluster.put(pod("fails"))
        await harness.settle()
        harness.cluster.put(node("larger", cpu="200"))
        await harness.advance(2)

    enabled = [{"schedulerName": "default-scheduler", "plugins": {"preBind": {"enabled": [{"name": "Failing"}]}}}]
    in_virtual_time(scenario, node("n"), plugins=[Failing], profiles=enabled, observer=traces.observer)
    roots = [span for span in traces.spans if span.attributes.get("k8s.pod.name") == "large"]
    assert [span.attributes["kubestow.attempt"] for span in roots] == [*range(1, len(roots) + 1)]
    assert (roots[0].attributes["kubestow.result"], roots[-1].attributes["kubestow.result"]) == (
        "unschedulable",
        "scheduled",
    )
    assert "Insufficient cpu" in str(roots[0].attributes["kubestow.message"])
    assert roots[0].error is None
    fails = traces.of_pod("fails")
    assert fails[0].error == 'running PreBind plugin "Failing": no disk'
    assert "k8s.node.name" not in fails[0].attributes
    [plugin] = [span for span in fails if span.name == "PreBind Failing"]
    assert (plugin.error, plugin.attributes["kubestow.status"]) == ("no disk", "Error")


def test_concurrent_bindings_keep_their_own_traces() -> None:
    traces = Traces()

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(8):
            harness.cluster.put(pod(f"p{number}"))
        await harness.settle()

    in_virtual_time(scenario, node("n", cpu="64"), observer=traces.observer)
    for number in range(8):
        spans = traces.of_pod(f"p{number}")
        assert sum(span.name == "Bind DefaultBinder" for span in spans) == 1
        assert sum(span.name == "Filter" for span in spans) == 1
    assert len({span.trace_id for span in traces.spans}) == 8


def test_the_calls_of_a_plugin_for_several_nodes_are_one_span() -> None:
    calls = [PluginCalls(3, start, start + 5, plugin, "Filter") for start, plugin in ((10, "A"), (20, "B"), (30, "A"))]
    point = ExtensionPoint(3, 5, 50, "Filter", "Success")
    record = AttemptRecord(bytes(15) + b"\1", 2, 3, 4, 0, 0, "shop/a", "uid", "s", 1, events=[*calls, point])
    filtered, first, second = spans_of(record, count(7).__next__)
    assert (filtered.name, filtered.parent_id, filtered.start, filtered.end) == ("Filter", 3, 5, 50)
    assert [(span.name, span.start, span.end, span.parent_id) for span in (first, second)] == [
        ("Filter A", 10, 35, 7),
        ("Filter B", 20, 25, 7),
    ]
    assert (first.attributes["kubestow.calls"], "kubestow.calls" in second.attributes) == (2, False)


@pytest.mark.parametrize(("ratio", "fewest", "most"), [(0.0, 0, 0), (0.1, 60, 140), (1.0, 1000, 1000)])
def test_a_fraction_of_attempts_is_sampled(ratio: float, fewest: int, most: int) -> None:
    traces = Traces(ratio)
    infos = [Shapes().info(pod(f"p{number}")) for number in range(1000)]
    for info in infos:
        traces.tracer.attempt_started(QueuedPod(info, 0.0))
    sampled = 0
    for info in infos:
        traces.tracer.decision_started(info)
        request = traces.tracer.request_started("GET", "server", "/")
        if request is not None:
            sampled += 1
            # As OpenTelemetry's sampler decides: by the last 64 bits of the trace ID.
            assert int(request.traceparent.split("-")[1][16:], 16) < ratio * 2**64
    assert fewest <= sampled <= most


def test_attempts_that_never_end_do_not_accumulate() -> None:
    traces = Traces()
    queued: Callable[[int], QueuedPod] = lambda number: QueuedPod(Shapes().info(pod(f"p{number}")), 0.0)  # noqa: E731
    first = queued(0)
    for number in range(10_001):
        traces.tracer.attempt_started(queued(number))
    traces.tracer.decision_started(first.info)
    assert traces.tracer.request_started("GET", "server", "/") is None


def test_the_other_observer_of_plugins_hears_of_everything() -> None:
    tracer, heard = AttemptTracer(1.0, lambda take: None, random=Random(1)), list[str]()
    methods = [name for name, value in vars(PluginObserver).items() if callable(value) and name != "for_attempt"]
    other = PluginObserver()
    for name in methods:
        setattr(other, name, lambda *arguments, name=name, **named: heard.append(name))
    wrapped = tracer.wrap_plugin_observer(other)

    for name in methods:
        arguments = [None] * len(
            [each for each in signature(getattr(PluginObserver, name)).parameters if each != "self"]
        )
        if name == "gang_attempt_ended":
            wrapped.gang_attempt_ended("scheduled", 0.0, deciding=None)
        else:
            getattr(wrapped, name)(*arguments)

    assert heard == methods


def test_only_calls_of_sampled_attempts_are_recorded_beside_the_other_observer() -> None:
    heard = []

    class Other(PluginObserver):
        def plugin_called(self, plugin: str, extension_point: str, result: object, seconds: float) -> None:
            heard.append(plugin)

        def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
            heard.append(extension_point)

    takes: list[Callable[[], AttemptRecord]] = []
    tracer, other = AttemptTracer(1.0, takes.append, random=Random(1)), Other()
    profile = tracer.wrap_plugin_observer(other)
    sampled = QueuedPod(Shapes().info(pod("sampled")), 0.0)
    tracer.attempt_started(sampled)
    assert profile.for_attempt(Shapes().info(pod("not-sampled"))) is profile
    for observer in (profile, profile.for_attempt(sampled.info)):
        observer.plugin_called("Ports", "Filter", None, 0.0)
        observer.extension_point_ended("Filter", Code.SUCCESS, 0.0)
    tracer.attempt_ended(sampled, Result.SCHEDULED, "", 0.0)
    [take] = takes
    assert [event[0] for event in take().events] == [PLUGIN_CALLS, EXTENSION_POINT]  # type: ignore[index]
    assert heard == ["Ports", "Filter"] * 2
