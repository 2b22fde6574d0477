"""One pod's way through the scheduler: every plugin call at every extension point, and every move in the queue.

The scheduler itself runs, in virtual time, on the cluster with this one pending pod; an observer lists what it reports.
A pod that is bound is traced as if it was created anew.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions, find_pod, unbound
from kubestow.framework.interface import Permission, PostFilterResult, PreFilterResult
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import Code, Status, Verdict
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.observer import Call, Disruption, Preemptor, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow_lab.simulation.outcomes import OutcomeRecorder
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions

#: A trace ends after so many virtual seconds, for pods that are tried again and again.
_SECONDS = 60.0
#: Calls that are not extension points but decide which plugins take part.
_QUESTIONS = frozenset({"applies_to", "label_keys_for", "signature"})
_APPLIES = "applies"
_MOST_REASONS = 3


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step: a call of a ``plugin`` at an extension point, the end of an extension point, or a move in the queue.

    ``stage`` is the extension point, ``queue``, ``decision``, ``preemption`` or ``API``. ``time`` is virtual, in
    seconds since the start.
    """

    time: float
    attempt: int
    stage: str
    plugin: str
    input: str
    result: str


@dataclass(frozen=True, slots=True, repr=False)
class Trace(Displayed):
    """The steps of one pod in order, and how it ended. In a notebook and with rich it shows as a table."""

    pod: str
    steps: tuple[TraceStep, ...]
    outcome: str
    remarks: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """The trace as plain data."""
        steps = [asdict(step) for step in self.steps]
        return {"pod": self.pod, "outcome": self.outcome, "steps": steps, "remarks": list(self.remarks)}

    def blocks(self) -> tuple[Block, ...]:
        """How it ended, and the steps in a table."""
        table = Table("time", "try", "stage", "plugin", "input", "result", right=("try",))
        stage = ""
        for step in self.steps:
            shown = "" if step.stage == stage else step.stage
            table.add(f"{step.time:.3f}", str(step.attempt or ""), shown, step.plugin, step.input, step.result)
            stage = step.stage
        return Paragraph(f"pod {self.pod}: {self.outcome}\n"), table


def trace(cluster: ClusterObjects, pod: str, options: SchedulerOptions | None = None) -> Trace:
    """Trace the pod ``namespace/name``. The other pending pods of the cluster take no part.

    Raises InputError for an unknown pod, ConfigurationError, and PluginError when a plugin cannot be constructed.
    """
    options = options or SchedulerOptions()
    found = find_pod(cluster, pod)
    pending = unbound(found)
    placed = [other for other in cluster.pods if other is not found and other.spec.node_name]
    recorders: list[_TraceRecorder] = []

    def recorder(now: Callable[[], float], **callbacks: Callable[[], None]) -> _TraceRecorder:
        recorders.append(_TraceRecorder(now, pending, len(cluster.nodes), **callbacks))
        return recorders[-1]

    simulation = Simulation(
        replace(cluster, pods=[*placed, pending]),
        configuration=options.configuration,
        plugins=options.plugins,
        gates=options.gates,
        options=SimulationOptions(ties="name", until=_SECONDS, departures=False, replacements=False),
        recorder=recorder,
    )
    result = simulation.run()
    outcome = next(o for o in result.outcomes if o.key == f"{pending.metadata.namespace}/{pending.metadata.name}")
    text = f"{outcome.state.value}{f' on {outcome.node}' if outcome.node else ''}"
    steps: list[TraceStep] = []
    for stage, run in itertools.groupby(recorders[-1].steps, key=lambda step: step.stage):
        together = list(run)
        # Plugins are asked in no particular order whether they apply.
        steps += sorted(together, key=lambda step: step.plugin) if stage == _APPLIES else together
    return Trace(outcome.key, tuple(steps), f"{text}: {outcome.message}" if outcome.message else text, result.remarks)


class _TraceRecorder(OutcomeRecorder):
    """Lists what the scheduler reports while it runs."""

    def __init__(
        self,
        now: Callable[[], float],
        pod: Pod,
        nodes: int,
        *,
        after_attempt: Callable[[], None],
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(now, after_attempt=after_attempt, on_change=on_change)
        self._time, self._uid, self.nodes = now, pod.metadata.uid, nodes
        self._attempt = 0
        #: The node that was decided on, the input of Reserve and what follows it.
        self.node = ""
        self.steps: list[TraceStep] = []

    def add(self, stage: str, *, plugin: str = "", given: str = "", result: str = "") -> None:
        """Add a step at this moment."""
        self.steps.append(TraceStep(round(self._time(), 6), self._attempt, stage, plugin, given, result))

    def plugin_observer(self, scheduler_name: str) -> PluginObserver:
        return _PluginTracer(self)

    def begin_attempt(self) -> None:
        """PreFilter begins a scheduling cycle."""
        self._attempt += 1

    def decision_made(self, decision: Decision, seconds: float) -> None:
        if isinstance(decision, Scheduled):
            self.node = decision.node_name
            self.add("decision", given=f"{decision.candidate_count} feasible nodes", result=self.node)
        else:
            self.add("decision", given="0 feasible nodes", result=decision.message)
        super().decision_made(decision, seconds)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        super().attempt_ended(queued, result, message, seconds)
        if queued.info.uid == self._uid:
            self.add("attempt", result=f"{result.value}: {message}" if message else result.value)

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        super().pod_bound(queued, node_name, seconds)
        self.add("queue", result=f"bound to {node_name}, out of the queue")

    def permit_wait_ended(self, info: PodInfo, code: Code, seconds: float) -> None:
        self.add("Permit", given=f"waited {seconds:.3f} s", result=code.value)

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        super().preemption_started(preemptors, node_name, victims, disruption)
        self.add("preemption", given=counted(len(victims), "victim"), result=f"nominated for {node_name}")

    def evictions_ended(self, preemptor: PodInfo, *, kind: Preemptor, succeeded: bool, seconds: float) -> None:
        self.add("preemption", result="victims are gone" if succeeded else "an eviction failed")

    def pod_enqueued(self, place: str, event: str) -> None:
        self.add("queue", given=event, result=f"into {place}")

    def api_call_ended(self, call: Call, *, succeeded: bool, seconds: float) -> None:
        self.add("API", given=call.value, result="done" if succeeded else "failed")


class _PluginTracer(PluginObserver):
    """Adds the calls of plugins."""

    def __init__(self, recorder: _TraceRecorder) -> None:
        self._recorder = recorder
        #: Whether PreFilter, with which a scheduling cycle begins, has begun but not ended.
        self._in_cycle = False

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        if extension_point in _QUESTIONS:
            if extension_point == "applies_to" and result is False:
                self._recorder.add(_APPLIES, plugin=plugin, given="pod", result="no, left out for this pod")
            return
        if hasattr(result, "__await__"):
            return  # reported again with its status
        if extension_point == "PreFilter":
            self._enter_cycle()
        given = _input(extension_point, result, self._recorder)
        self._recorder.add(extension_point, plugin=plugin, given=given, result=_result(result))

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        if extension_point == "PreFilter":
            self._enter_cycle()  # all plugins may have valid results
            self._in_cycle = False
        self._recorder.add(extension_point, plugin="(all)", result=code.value)

    def _enter_cycle(self) -> None:
        if not self._in_cycle:
            self._in_cycle = True
            self._recorder.begin_attempt()

    def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        self._recorder.add("queue", plugin=plugin, given=event, result=f"hint: {hint}")


# -- inputs and results ----------------------------------------------------------------------------------------------


def _input(point: str, result: Any, recorder: _TraceRecorder) -> str:
    if point in ("PreFilter", "PreScore"):
        return "pod, nodes"
    if point in ("Filter", "Score", "NormalizeScore"):
        count = len(result) if isinstance(result, Verdict | np.ndarray) else recorder.nodes
        nodes = counted(count, "node")
        return f"raw scores of {nodes}" if point == "NormalizeScore" else nodes
    if point in ("Reserve", "Permit", "PreBindPreFlight", "PreBind", "Bind", "PostBind", "Unreserve"):
        return recorder.node
    return "pod, diagnosis" if point == "PostFilter" else "pod"


def _result(result: Any) -> str:
    match result:
        case None:
            return Code.SUCCESS.value
        case Status():
            return f"{result.code.value}: {result.message}" if result.reasons else result.code.value
        case Permission():
            wait = f" for at most {result.timeout:g} s" if result.status.code is Code.WAIT else ""
            return _result(result.status) + wait
        case PreFilterResult():
            return counted(len(result.node_names), "node") + " left"
        case PostFilterResult():
            victims = ", ".join(victim.key for victim in result.victims)
            where = f" on {result.nominated_node_name}, evicting {victims}" if result.nominated_node_name else ""
            return _result(result.status) + where
        case Verdict():
            return _verdict(result)
        case np.ndarray() if not len(result):
            return "no scores"
        case np.ndarray():
            low, high = int(result.min()), int(result.max())
            best = np.count_nonzero(result == high)
            return f"all {low}" if low == high else f"{low} to {high}, the highest for {best:,}"
        case Exception():
            return f"{type(result).__name__}: {result}"
        case _:
            return str(result)


def _verdict(verdict: Verdict) -> str:
    every = np.ones(len(verdict), np.bool_)
    counts: Counter[str] = Counter()
    for status, count, _ in verdict.tally(every):
        counts[status.message] += count
    passed = int(np.count_nonzero(verdict.passes))
    parts = [f"{passed:,} pass", *(f"{count:,} {reason}" for reason, count in counts.most_common(_MOST_REASONS))]
    return "; ".join([*parts, "…"] if len(counts) > _MOST_REASONS else parts)
