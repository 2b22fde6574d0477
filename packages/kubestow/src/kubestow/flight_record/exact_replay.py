"""Exact replay: the recorded scheduler, run again on what it received, step by step.

The scheduler is composed as it was: configuration, plugins, feature gates, random source. It gets the recorded inputs
after the same number of steps, reads the recorded times, and its callbacks run in the recorded order. Each decision,
attempt and call is compared with the recorded one. The first difference ends the replay, because everything after it
would differ too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from kubestow import config
from kubestow.errors import InputError
from kubestow.flight_record.entries import (
    Answered,
    AttemptEnded,
    Called,
    Changed,
    Decided,
    End,
    Header,
    Input,
    Listed,
    Output,
    Stopped,
    TimerFired,
    Undecodable,
)
from kubestow.flight_record.interfaces import create_proxy
from kubestow.flight_record.recording import decided
from kubestow.flight_record.replay_environment import ReplayBoundary, ReplayLoop, Tape
from kubestow.flight_record.segment import Segment
from kubestow.framework.interface import Plugin
from kubestow.plugins.configuration_file import read_configuration
from kubestow.plugins.registry import find_plugins, find_pod_group_apis
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.environment import Environment, Leadership
from kubestow.scheduling.extenders.stages import Extender
from kubestow.scheduling.interfaces import Clock, ClusterAPI, Computing
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between a replay and its record.

    ``time`` is the recorded date and time, ``decisions`` the number of equal decisions before. ``recorded`` and
    ``replayed`` describe what differs; one of them is empty if that did not happen at all.
    """

    time: datetime
    decisions: int
    recorded: str
    replayed: str


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """The result of a replay: what was compared, over how many seconds of the record.

    ``damage`` is what is wrong with the file after its last readable part, up to which it was replayed. ``end`` says
    whether the record stopped before the scheduler did.
    """

    began: datetime
    seconds: float
    decisions: int
    attempts: int
    calls: int
    divergence: Divergence | None
    damage: InputError | None
    end: End | None


def replay(segment: Segment, plugins: Mapping[str, type[Plugin]] | None = None) -> ReplayResult:
    """Replay a record of a scheduler from its start; ``plugins`` are registered in addition, by name.

    Raises InputError if the record's configuration has a plugin that is neither installed nor among ``plugins``. Must
    not be called on a running event loop.
    """
    return _Replay(segment, plugins).run()


#: The minor version of schedulers whose records do not tell it.
_FIRST_RECORDED = "1.36"


def recorded_gates(header: Header) -> config.FeatureGates:
    """The feature gates of a record, in the minor version that it was decided as. Raises InputError."""
    minor = recorded_minor(header)
    known = dict(config.FeatureGates(minor=minor))
    overrides = {name: enabled for name, enabled in header.gates.items() if known.get(name) != enabled}
    return config.FeatureGates(overrides, minor=minor)


def recorded_minor(header: Header) -> Minor:
    """The minor version that a record was decided as; of one without a scheduler, that of the API server.

    Raises InputError for one that is not supported.
    """
    unknown = _FIRST_RECORDED if header.has_scheduler else str(DEFAULT_MINOR)
    return Minor.parse(header.emulated_version or header.server_version or unknown, subject="version of the record")


def recorded_random(header: Header) -> Random:
    """A random source in the recorded state."""
    return header.random_source()


class _Replay(Observer):
    def __init__(self, segment: Segment, plugins: Mapping[str, type[Plugin]] | None) -> None:
        header = segment.header
        self._segment, self._header, self._tape = segment, header, Tape(segment)
        self._began = datetime.fromisoformat(header.began)
        #: The equal outputs so far, by kind.
        self._counts: Counter[type[Output]] = Counter()
        self._divergence: Divergence | None = None
        self._steps = 0
        self._is_over = False
        self._loop = ReplayLoop(lambda: self._tape.now)  # type: ignore[abstract]  # see there
        self._boundary = boundary = ReplayBoundary(self._tape, self._produce, self._loop)
        self._running: asyncio.Task[None] | None = None
        gates = recorded_gates(header)
        # A file does not decide what code is imported.
        registry = find_plugins((), plugins, minor=gates.minor)
        configuration = read_configuration(header.configuration, gates, registry)
        self._scheduler = Scheduler(
            configuration,
            registry=registry,
            pod_group_apis=find_pod_group_apis(),
            environment=Environment(
                create_proxy(ClusterAPI, boundary),
                create_proxy(Clock, boundary, SimpleNamespace(sleep=asyncio.sleep)),
                recorded_random(header),
                observer=self,
                stopwatch=lambda: self._tape.now,
                computing=create_proxy(Computing, boundary),
            ),
            gates=gates,
            extenders=[
                create_proxy(Extender, boundary, SimpleNamespace(settings=settings))
                for settings in configuration.extenders
            ],
            leadership=create_proxy(Leadership, boundary),
            pod_max_in_unschedulable_pods=header.pod_max_in_unschedulable_pods,
        )

    def run(self) -> ReplayResult:
        """Replay to the end, or to the first difference."""
        asyncio._set_running_loop(self._loop)
        try:
            self._running = self._loop.create_task(self._scheduler.run())
            while self._divergence is None and self._advance():
                if self._tape.overrun and not self._tape.is_cut:
                    self._diverge("", f"{self._tape.overrun} is read once more")
            seconds = self._tape.now - self._header.monotonic
            # The scheduler may be in the middle of something; what it does from now on is ignored.
            self._is_over = True
            self._boundary.close()
            self._running.cancel()
            self._loop.run_until_done(self._running)
            if self._running.done() and not self._running.cancelled():
                self._running.exception()
        finally:
            asyncio._set_running_loop(None)
            self._loop.close()
        return ReplayResult(
            self._began,
            seconds,
            decisions=self._counts[Decided],
            attempts=self._counts[AttemptEnded],
            calls=self._counts[Called],
            divergence=self._divergence,
            damage=self._tape.damage,
            end=self._segment.end,
        )

    # -- driving the scheduler -------------------------------------------------------------------------------------

    def _advance(self) -> bool:
        """Apply the next input, or run the next step; False at the end."""
        entry = self._tape.peek()
        if isinstance(entry, Input) and entry.steps <= self._steps:
            if (entry.steps, entry.readings) != (self._steps, self._tape.readings):
                replayed = f"{self._steps} steps and {self._tape.readings} readings of the clock"
                self._diverge(f"{entry.steps} steps and {entry.readings} readings before {_text(entry)}", replayed)
                return False
            self._tape.take()
            self._apply(entry)
            return True
        number = self._tape.take_step()
        if number is None:
            if entry is not None:
                self._diverge(_text(entry), "")
            return False
        self._steps += 1
        if not self._loop.run_step(number):
            self._diverge(f"step {self._steps} runs callback {number}", "the callback is not ready")
        return True

    def _apply(self, entry: Input) -> None:
        subscriber, resources = self._boundary.subscriber, self._boundary.resources
        try:
            match entry:
                case Listed() if subscriber is not None:
                    resource = resources[entry.resource]
                    subscriber.replace(resource, [msgspec.convert(obj, resource.type) for obj in entry.objects])
                case Changed() if subscriber is not None:
                    resource = resources[entry.resource]
                    subscriber.apply(resource, entry.type, msgspec.convert(entry.object, resource.type))
                case Undecodable() if subscriber is not None:
                    subscriber.unreadable(resources[entry.resource], entry.metadata, entry.problem)
                case Answered() if self._boundary.end_call(entry):
                    pass
                case TimerFired() if self._loop.fire_timer(entry.timer):
                    pass
                case Stopped() if self._running is not None:
                    self._running.cancel()
                case _:
                    self._diverge(_text(entry), "nothing waits for it")
        except (msgspec.ValidationError, IndexError) as error:
            self._diverge(_text(entry), f"it cannot be decoded: {error}")

    # -- comparing -------------------------------------------------------------------------------------------------

    def _produce(self, output: Output) -> None:
        if self._divergence is not None or self._is_over:
            return
        recorded = self._tape.peek()
        if recorded is None and self._tape.is_cut:
            return
        if isinstance(output, Called):
            output = msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(output)), Called)
        if recorded != output:
            self._diverge("" if isinstance(recorded, Input) else _text(recorded), _text(output))
            return
        self._tape.take()
        self._counts[type(output)] += 1

    def _diverge(self, recorded: str, replayed: str) -> None:
        if self._divergence is None:
            elapsed = timedelta(seconds=self._tape.now - self._header.monotonic)
            self._divergence = Divergence(self._began + elapsed, self._counts[Decided], recorded, replayed)

    # -- the observer's interface ----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self._produce(decided(decision))

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self._produce(AttemptEnded(queued.info.uid, queued.attempts, result.value))


def _text(entry: Any) -> str:
    """An entry in words."""
    match entry:
        case Decided(node=""):
            nominated = f", nominates {entry.nominated} with {len(entry.victims)} victims" if entry.nominated else ""
            victims = f" {', '.join(entry.victims)}" if entry.victims else ""
            return f"decides that no node fits pod {entry.pod}: {entry.message}{nominated}{victims}"
        case Decided():
            return f"decides to place pod {entry.pod} on node {entry.node}, of {entry.candidates} candidates"
        case AttemptEnded():
            return f"attempt {entry.attempt} of pod {entry.uid} ends as {entry.result}"
        case Called():
            return f"calls {entry.method} {entry.arguments}"
        case Answered():
            return f"the end of call {entry.call}"
        case Listed():
            return f"a list of {len(entry.objects)} objects of resource {entry.resource}"
        case Changed():
            return f"a watch event {entry.type} of resource {entry.resource}"
        case TimerFired():
            return f"timer {entry.timer}"
        case Stopped():
            return "the stop"
        case None:
            return "the end of the record"
    return str(entry)
