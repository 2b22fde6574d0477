"""Leader election: of several schedulers only the holder of a Lease schedules.

The rules are client-go's (semantics 1.3). A candidate tries to acquire the lease every retry period; the leader renews
it as often and gives up after the renew deadline without success. The lease of another holder is expired when it has
not been observed to change for its own duration, measured on the local monotonic clock. Its timestamps are never
compared with local time, so clocks may differ.

Two rules are stricter than client-go's, so that there are never two leaders: a leader counts its lease from the time of
the request, not of the response, and stops as soon as it observes another holder. One is faster: a candidate sleeps no
longer than the observed lease lasts and adds no jitter to the retry period, so it leads within one lease duration and
one retry period after the leader has died.

The holder can note on the Lease which pod it was lost to, for the next ones (:mod:`.supervised_election`).

A Lease is the one object that is written back whole, so it is kept as decoded JSON with all its fields. Every write
carries the resourceVersion that was read, so of two concurrent writers one gets a conflict.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import msgspec

from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.api.json_text import UNDECODABLE
from kubestow.api.reports import EventType
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import USER_AGENT, Transport
from kubestow.errors import APIError, InputError, LeaseLost, Unreachable
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock, EventRecord, ObjectReference
from kubestow.scheduling.queue.budget import MAX_PAUSE

_log = logging.getLogger(__name__)

_API_VERSION = "coordination.k8s.io/v1"
_LEADER_ELECTION = EventType(
    "LeaderElection",
    "LeaderElection",
    "{identity} {what}",
    regarding="Lease",
    help='A replica "became leader", or "stopped leading".',
)

STALLS_ANNOTATION = "kubestow.dev/stalls"
"""The pods that are held back, by namespace and name, each with the end of that: a JSON object."""

CLAIM_ANNOTATION = "kubestow.dev/claimed-by"
"""The identity of a candidate that asks the holder to hand the Lease over."""

_Stalls = dict[str, Annotated[datetime, msgspec.Meta(tz=True)]]


class LeaseLock:
    """Reads and writes one Lease for the candidate ``identity``; ``annotations`` are part of every write.

    ``record`` receives events about the Lease, with ``reporting_controller`` as their reporter.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        identity: str,
        namespace: str = "kube-system",
        name: str = "kube-scheduler",
        record: Callable[[EventRecord], None] = lambda event: None,
        reporting_controller: str = "default-scheduler",
        annotations: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._transport, self.identity = transport, identity
        self._annotations = annotations
        self._namespace, self._name = namespace, name
        self._record, self._reporting_controller = record, reporting_controller
        self._collection = f"/apis/{_API_VERSION}/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def read(self) -> dict[str, Any]:
        """GET the Lease and return its spec. Raises APIError (404 if it does not exist) and Unreachable."""
        return await self._send("GET", f"{self._collection}/{self._name}")

    async def create(self, spec: dict[str, Any]) -> dict[str, Any]:
        """POST the Lease and return its spec. Raises APIError and Unreachable."""
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace}
        if self._annotations:
            metadata["annotations"] = dict(self._annotations)
        self._lease = {"kind": "Lease", "apiVersion": _API_VERSION, "metadata": metadata}
        return await self._send("POST", self._collection, self._lease | {"spec": spec})

    async def update(self, spec: dict[str, Any]) -> dict[str, Any]:
        """PUT the Lease as last read, with this spec, and return the spec. Raises APIError and Unreachable."""
        for key, value in self._annotations.items():
            self.set_annotation(key, value)
        return await self._send("PUT", f"{self._collection}/{self._name}", self._lease | {"spec": spec})

    @property
    def stalls(self) -> dict[str, datetime]:
        """The pods whose attempts cost holders their Lease, and until when they are held back; as last read."""
        try:
            return msgspec.json.decode(self.annotation(STALLS_ANNOTATION) or "{}", type=_Stalls)
        except UNDECODABLE as error:
            values = fields(lock=str(self), annotation=STALLS_ANNOTATION, err=str(error))
            _log.warning("lease %s: annotation %s is malformed: %s", self, STALLS_ANNOTATION, error, extra=values)
            return {}

    def set_stalls(self, stalls: dict[str, datetime]) -> None:
        """Have the next update write these pods."""
        self.set_annotation(STALLS_ANNOTATION, msgspec.json.encode(stalls).decode())

    def annotation(self, key: str) -> str:
        """An annotation of the Lease as last read, "" without."""
        return ((self._lease.get("metadata") or {}).get("annotations") or {}).get(key) or ""

    def set_annotation(self, key: str, value: str | None) -> None:
        """Have the next update write an annotation, or remove it (None)."""
        metadata = self._lease.get("metadata") or {}
        annotations = {other: text for other, text in (metadata.get("annotations") or {}).items() if other != key}
        annotations |= {} if value is None else {key: value}
        self._lease = self._lease | {"metadata": metadata | {"annotations": annotations}}

    async def _send(self, method: str, path: str, lease: dict[str, Any] | None = None) -> dict[str, Any]:
        body = await self._transport.request(method, path, None if lease is None else msgspec.json.encode(lease))
        try:
            self._lease = msgspec.json.decode(body, type=dict[str, Any])
        except UNDECODABLE as error:
            raise Unreachable(self._transport.server, f"malformed Lease {self}: {error}") from None
        return self._lease.get("spec") or {}

    def record_event(self, what: str) -> None:
        """Record an event about the candidate (semantics 1.7), for example ``became leader``."""
        metadata = self._lease.get("metadata") or {}
        lease = ObjectReference(
            "Lease",
            self._namespace,
            self._name,
            metadata.get("uid") or "",
            api_version=_API_VERSION,
            resource_version=metadata.get("resourceVersion") or "",
        )
        event = _LEADER_ELECTION
        note = event.note.format(identity=self.identity, what=what)
        self._record(
            EventRecord(lease, event.reason, event.action, note, reporting_controller=self._reporting_controller)
        )


#: client-go's JitterFactor, the upper bound of its jitter of the retry period.
_JITTER_FACTOR = 1.2


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Durations in seconds; the defaults are kube-scheduler's. A Lease holds ``lease_duration`` in whole seconds.

    Raises InputError unless ``renew_deadline`` allows for a second try.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if self.renew_deadline <= _JITTER_FACTOR * self.retry_period:
            raise InputError(
                "leaderElection",
                f"{self.renew_deadline:g} s must be greater than {_JITTER_FACTOR} times retryPeriod"
                f" ({self.retry_period:g} s)",
                place="renewDeadline",
            )


class LeaderElector:
    """A candidate for one Lease; implements :class:`kubestow.scheduling.environment.Leadership`.

    Call :meth:`acquire`, then work while :meth:`hold` runs concurrently, then :meth:`release`. The lock should have a
    transport of its own with a timeout of half the renew deadline. ``on_new_leader`` is called with the identity of
    each new leader, including this candidate.
    """

    def __init__(
        self,
        lock: LeaseLock,
        *,
        clock: Clock,
        timings: LeaseTimings = LeaseTimings(),
        on_new_leader: Callable[[str], None] = lambda identity: None,
    ) -> None:
        self._lock, self._clock, self._timings, self._on_new_leader = lock, clock, timings, on_new_leader
        self._observed_spec: dict[str, Any] | None = None
        #: Monotonic time when the spec was observed to change; for our own writes, the time of the request.
        self._observed_at = float("-inf")
        #: The times of our own recent requests, by the renewTime that they wrote.
        self._requested_at: dict[str, float] = {}
        #: What :meth:`acquire` returns.
        self._inherited: dict[str, float] = {}
        self.leader = ""

    @property
    def is_leader(self) -> bool:
        """Whether this candidate is the observed holder."""
        return self.leader == self._lock.identity

    @property
    def lease(self) -> str:
        """Namespace and name of the Lease."""
        return str(self._lock)

    @property
    def identity(self) -> str:
        """The identity of this candidate."""
        return self._lock.identity

    @property
    def claimant(self) -> str:
        """The candidate that asks for the lease, as last read; "" for none."""
        return self.annotation(CLAIM_ANNOTATION)

    def annotation(self, key: str) -> str:
        """An annotation of the Lease, as last read; "" without."""
        return self._lock.annotation(key)

    @property
    def inherited_stalls(self) -> dict[str, float]:
        """The pods that cost former holders the lease when it was acquired, with the seconds that were left."""
        return self._inherited

    @property
    def holds_lease(self) -> bool:
        """Whether this candidate is the observed holder, and its lease has not expired."""
        return self.is_leader and self.overdue <= 0.0

    @property
    def overdue(self) -> float:
        """Seconds since our lease expired without renewal; zero or negative while it is valid or not ours."""
        if not self.is_leader:
            return 0.0
        return self._clock.monotonic() - self._observed_at - int(self._timings.lease_duration)

    async def acquire(self) -> dict[str, float]:
        """Return once this candidate leads: the pods of :meth:`note_stall`, with the seconds that are left."""
        _log.info("attempting to acquire leader lease %s", self._lock, extra=fields(lock=str(self._lock)))
        while not await self.try_acquire_or_renew():
            left = self.left_to_other_holder
            retry_period = self._timings.retry_period
            await self._clock.sleep(min(left, retry_period) if left > 0 else retry_period)
        extra = fields(lock=str(self._lock), identity=self._lock.identity)
        _log.info("successfully acquired lease %s as %s", self._lock, self._lock.identity, extra=extra)
        self._lock.record_event("became leader")
        return self._inherited

    async def note_stall(self, pod: str, seconds: float) -> None:
        """Write on the Lease that an attempt costs it, so that the next leaders hold the pod back for so long.

        The pod is named by namespace and name. Failures are only logged.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timings.renew_deadline):
                while not await self._try_note_stall(pod, seconds):
                    await self._clock.sleep(self._timings.retry_period)

    async def _try_note_stall(self, pod: str, seconds: float) -> bool:
        """Try once; whether another try is pointless."""
        try:
            await self._get()  # a renewal may have been on its way
            if not self.holds_lease:
                return True
            now = self._clock.now()
            stalls = {other: until for other, until in self._lock.stalls.items() if until > now}
            self._lock.set_stalls(stalls | {pod: now + timedelta(seconds=seconds)})
            await self._update(holder=self._lock.identity, duration=self._timings.lease_duration, acquired=False)
        except (APIError, Unreachable) as error:
            extra = fields(lock=str(self._lock), pod=pod, err=str(error))
            _log.warning("failed to note the stall by pod %s on lease %s: %s", pod, self._lock, error, extra=extra)
            return False
        return True

    async def hold(self) -> NoReturn:
        """Renew the lease until that fails. Raises LeaseLost."""
        try:
            while await self.renew():
                await self._clock.sleep(self._timings.retry_period)
        finally:
            self._lock.record_event("stopped leading")
        raise self.loss()

    def record_event(self, what: str) -> None:
        """Record an event of the Lease about this candidate, for example ``became leader``."""
        self._lock.record_event(what)

    def loss(self) -> LeaseLost:
        """Why the lease could not be renewed."""
        if self.leader and not self.is_leader:
            return LeaseLost(str(self._lock), f"is now held by {self.leader}")
        return LeaseLost(str(self._lock), f"could not be renewed within {self._timings.renew_deadline:g} s")

    async def release(self) -> None:
        """Clear the holder, so that the next leader need not wait for the lease to expire. Failures are only logged."""
        if not self.is_leader:
            return
        try:
            async with asyncio.timeout(self._timings.renew_deadline):
                await self._get()
                if self.is_leader:
                    await self._update(holder="", duration=1, acquired=True)
        except (APIError, Unreachable, TimeoutError) as error:
            problem = str(error) or "timed out"
            extra = fields(lock=str(self._lock), err=problem)
            _log.warning("failed to release lease %s: %s", self._lock, problem, extra=extra)

    # -- acquire and renew ---------------------------------------------------------------------------------------------

    async def renew(self) -> bool:
        """Whether the lease was renewed before the renew deadline, and before it expired for others.

        A process that was suspended for longer gets one more retry period: the lease is often still its own.
        """
        limit = max(min(self._timings.renew_deadline, -self.overdue), self._timings.retry_period)
        deadline = self._clock.monotonic() + limit
        try:
            async with asyncio.timeout(limit):  # the transport respects Retry-After, which may exceed the deadline
                while not await self.try_acquire_or_renew():
                    await self._clock.sleep(self._timings.retry_period)
                    if not self.is_leader or self._clock.monotonic() >= deadline:
                        return False
        except TimeoutError:
            return False
        return True

    async def try_acquire_or_renew(self) -> bool:
        """Try once; whether this candidate leads now."""
        return await self._try(self._acquire_or_renew(), "acquire or renew")

    async def observe(self) -> bool:
        """Read the lease without trying to acquire it; whether there is an answer."""
        return await self._try(self._read(), "read")

    async def claim(self) -> None:
        """Ask the other holder to hand the lease over. Failures are only logged."""
        await self._try(self._claim(), "claim")

    async def _try(self, request: Awaitable[bool], what: str) -> bool:
        try:
            async with asyncio.timeout(self._timings.renew_deadline):  # as in renew
                return await request
        except (APIError, Unreachable, TimeoutError) as error:
            problem = str(error) or "timed out"
            extra = fields(lock=str(self._lock), err=problem)
            _log.warning("failed to %s lease %s: %s", what, self._lock, problem, extra=extra)
            return False

    async def _read(self) -> bool:
        try:
            await self._get()
        except APIError as error:
            if error.code != 404:
                raise
        return True

    async def _claim(self) -> bool:
        await self._get()
        if self.left_to_other_holder > 0 and self._observed_spec is not None:
            self._lock.set_annotation(CLAIM_ANNOTATION, self._lock.identity)
            self._observe(await self._lock.update(self._observed_spec))
        return True

    async def _acquire_or_renew(self) -> bool:
        if self.is_leader and self.overdue <= 0 and await self._renew_optimistically():
            return True
        try:
            await self._get()
        except APIError as error:
            if error.code != 404:
                raise
            await self._create()
            return True
        if self.left_to_other_holder > 0:
            return False
        if not self.is_leader:
            self._inherit_stalls()
            self._lock.set_annotation(CLAIM_ANNOTATION, None)
        await self._update(
            holder=self._lock.identity, duration=self._timings.lease_duration, acquired=not self.is_leader
        )
        return True

    def _inherit_stalls(self) -> None:
        """Have the next update write the stalls of former holders by the clock of this one, which may differ."""
        now, renewed = self._clock.now(), (self._observed_spec or {}).get("renewTime")
        try:
            then = now if renewed is None else msgspec.convert(renewed, Annotated[datetime, msgspec.Meta(tz=True)])
        except msgspec.ValidationError:
            then = now
        pauses = {pod: min((until - then).total_seconds(), MAX_PAUSE) for pod, until in self._lock.stalls.items()}
        self._inherited = {pod: seconds for pod, seconds in pauses.items() if seconds > 0.0}
        if pauses:
            self._lock.set_stalls({pod: now + timedelta(seconds=left) for pod, left in self._inherited.items()})

    async def _renew_optimistically(self) -> bool:
        """Renew without reading first: while our lease is valid, no other candidate should have written it."""
        try:
            await self._update(holder=self._lock.identity, duration=self._timings.lease_duration, acquired=False)
        except APIError as error:
            extra = fields(lock=str(self._lock), err=str(error))
            _log.debug("failed to update lease %s optimistically, reading it first: %s", self._lock, error, extra=extra)
            return False
        return True

    @property
    def observed_at(self) -> float:
        """When the lease was observed to change, in monotonic seconds of the clock; -inf before the first time."""
        return self._observed_at

    @property
    def left_to_other_holder(self) -> float:
        """Seconds until the lease of another holder expires; zero or negative if there is none."""
        if not self.leader or self.is_leader:
            return 0.0
        duration = (self._observed_spec or {}).get("leaseDurationSeconds") or 0
        return self._observed_at + float(duration) - self._clock.monotonic()

    # -- the Lease -----------------------------------------------------------------------------------------------------

    async def _get(self) -> None:
        self._observe(await self._lock.read())

    async def _create(self) -> None:
        self._observed_spec = None
        spec = self._spec(holder=self._lock.identity, duration=self._timings.lease_duration, acquired=True)
        spec["leaseTransitions"] = 0
        self._note_request(spec)
        self._observe(await self._lock.create(spec))

    async def _update(self, *, holder: str, duration: float, acquired: bool) -> None:
        spec = self._spec(holder=holder, duration=duration, acquired=acquired)
        self._note_request(spec)
        self._observe(await self._lock.update(spec))

    def _note_request(self, spec: dict[str, Any]) -> None:
        now = self._clock.monotonic()
        recent = {time: at for time, at in self._requested_at.items() if now - at < self._timings.lease_duration}
        self._requested_at = recent | {spec["renewTime"]: now}

    def _spec(self, *, holder: str, duration: float, acquired: bool) -> dict[str, Any]:
        """The observed spec with our changes; ``acquired`` if the holder changes."""
        now = micro_timestamp(self._clock.now())
        spec: dict[str, Any] = dict(self._observed_spec or {})
        transitions = spec.get("leaseTransitions") or 0
        spec |= {"holderIdentity": holder, "leaseDurationSeconds": int(duration), "renewTime": now}
        if acquired:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = transitions + (1 if holder else 0)
        return spec

    def _observe(self, spec: dict[str, Any]) -> None:
        leader = spec.get("holderIdentity") or ""
        if leader == self._lock.identity:
            # Others may have observed a write as soon as it was sent, also one whose response was lost.
            self._observed_at = self._requested_at.get(spec.get("renewTime", ""), self._observed_at)
        elif spec != self._observed_spec:
            self._observed_at = self._clock.monotonic()
        self._observed_spec = spec
        if leader != self.leader:
            self.leader = leader
            if leader:
                self._on_new_leader(leader)


@asynccontextmanager
async def lease_candidate(
    credentials: Credentials,
    *,
    namespace: str,
    name: str,
    timings: LeaseTimings,
    record: Callable[[EventRecord], None],
    reporting_controller: str,
    clock: Clock,
    on_new_leader: Callable[[str], None] = lambda identity: None,
) -> AsyncIterator[LeaderElector]:
    """A candidate with connections of its own, so that load on the others cannot delay a renewal."""
    async with lease_transport(credentials, timings, clock) as transport:
        lock = LeaseLock(
            transport,
            identity=candidate_identity(),
            namespace=namespace,
            name=name,
            record=record,
            reporting_controller=reporting_controller,
        )
        yield LeaderElector(lock, clock=clock, timings=timings, on_new_leader=on_new_leader)


def lease_transport(credentials: Credentials, timings: LeaseTimings, clock: Clock) -> Transport:
    """Connections for Leases."""
    timeout = max(1.0, timings.renew_deadline / 2)
    return Transport(credentials, clock=clock, user_agent=f"{USER_AGENT}/leader-election", timeout=timeout)


def candidate_identity() -> str:
    """An identity that no other candidate has, with the name of the host."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"
