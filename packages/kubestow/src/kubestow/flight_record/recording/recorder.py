"""The recorder: a scheduler built on recorded interfaces, and run so that each of its steps is known.

The scheduler is the same as without a recorder. Its event loop has to be a
:class:`~kubestow.flight_record.recording.event_loop.RecordedLoop`.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

from msgspec import structs

from kubestow import config
from kubestow.config.rendering import render
from kubestow.flight_record.entries import AttemptEnded, Decided, Header, Stopped
from kubestow.flight_record.recording.event_loop import RecordedLoop
from kubestow.flight_record.recording.journal import ChunkSink, Journal
from kubestow.flight_record.recording.recorded_ports import (
    Calls,
    RecordedAPI,
    RecordedClock,
    RecordedExtender,
    RecordedLeadership,
)
from kubestow.framework.profile import Registry
from kubestow.scheduling.decision.result import Decision, Scheduled, Unschedulable
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.extenders.interface import Extender
from kubestow.scheduling.leadership import Leadership, NoLeaderElection
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.version import VERSION

__all__ = ["FlightRecorder", "SegmentSink", "decided"]

#: What is recorded is written after so many seconds at the latest.
_FLUSH_SECONDS = 1.0


class SegmentSink(ChunkSink, Protocol):
    """Where a recording goes: a header, then chunks."""

    def begin_segment(self, header: Header) -> None:
        """Begin the record."""


class FlightRecorder(Observer):
    """Records one scheduler. It is also an observer, which the scheduler's environment has to include."""

    def __init__(self, sink: SegmentSink) -> None:
        self._sink = sink
        self.journal = Journal(sink)

    def create_scheduler(
        self,
        configuration: config.KubeSchedulerConfiguration,
        *,
        registry: Registry,
        environment: Environment,
        gates: config.FeatureGates,
        extenders: Sequence[Extender] = (),
        leadership: Leadership | None = None,
        pod_max_in_unschedulable_pods: float = 300.0,
        plugins: Sequence[str] = (),
    ) -> Scheduler:
        """A recorded scheduler, with the arguments of :class:`Scheduler`; :meth:`run` it.

        ``plugins`` are the references, as ``module:Class``, of those in the registry that a replay has to import. The
        scheduler has a random source of its own, which starts in the state of the given one.
        """
        random = Random()
        random.setstate(environment.random.getstate())
        now = environment.clock.now()
        self._sink.begin_segment(
            Header(
                kubestow=VERSION,
                python=platform.python_version(),
                began=now.isoformat(),
                monotonic=environment.clock.monotonic(),
                configuration=render(_without_secrets(configuration)),
                gates=dict(gates),
                plugins=list(plugins),
                pod_max_in_unschedulable_pods=pod_max_in_unschedulable_pods,
                random=_state_as_data(random),
            )
        )
        calls = Calls(self.journal)
        recorded = replace(
            environment,
            api=RecordedAPI(environment.api, calls, self.journal, environment.clock),
            clock=RecordedClock(environment.clock),
            random=random,
            stopwatch=environment.duration_clock,
        )
        return self.journal.inside().run(
            lambda: Scheduler(
                configuration,
                registry=registry,
                environment=recorded,
                gates=gates,
                extenders=[RecordedExtender(extender, calls) for extender in extenders],
                leadership=RecordedLeadership(leadership or NoLeaderElection(), calls),
                pod_max_in_unschedulable_pods=pod_max_in_unschedulable_pods,
            )
        )

    async def run(self, scheduler: Scheduler) -> None:
        """Run the scheduler as :meth:`Scheduler.run` does, and hand over the rest of the record when it ends."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, RecordedLoop):
            raise RuntimeError(f"a recorded scheduler needs a RecordedLoop, got {type(loop).__name__}")
        running = loop.create_task(scheduler.run(), context=self.journal.inside())
        while not running.done():
            try:
                await asyncio.wait((running,), timeout=_FLUSH_SECONDS)
            except asyncio.CancelledError:
                self.journal.append(Stopped(self.journal.steps, self.journal.readings))
                running.cancel()
            self.journal.flush()
        running.result()

    # -- the observer's interface ----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self.journal.append(decided(decision))

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.journal.append(AttemptEnded(queued.info.uid, queued.attempts, result.value))


def decided(decision: Decision) -> Decided:
    """A decision as a record has it."""
    pod = decision.pod
    if isinstance(decision, Scheduled):
        return Decided(pod.key, pod.uid, decision.node_name, "", decision.candidate_count, "", [])
    nominated, victims = "", []
    if isinstance(decision, Unschedulable) and (result := decision.post_filter.nomination) is not None:
        nominated, victims = result.nominated_node_name or "", [victim.uid for victim in result.victims]
    return Decided(pod.key, pod.uid, "", decision.message, 0, nominated, victims)


def _without_secrets(configuration: config.KubeSchedulerConfiguration) -> config.KubeSchedulerConfiguration:
    """The configuration without the client certificates and keys of extenders, and without the kubeconfig's path."""
    extenders = [structs.replace(extender, tls_config=None) for extender in configuration.extenders]
    connection = structs.replace(configuration.client_connection, kubeconfig="")
    return structs.replace(configuration, extenders=extenders, client_connection=connection)


def _state_as_data(random: Random) -> list[Any]:
    version, state, gauss = random.getstate()
    return [version, list(state), gauss]
