"""Leader election: of several schedulers only the one that holds a Lease works.

The rules are client-go's (semantics 1.3). A candidate tries to take the lease every retry period; the leader renews it
as often, and gives up when it has not succeeded for the renew deadline. Somebody else's lease counts as expired when it
has not changed for the duration written in it *on our own clock*: the times in it are for people to read, so clocks
need not agree, and one that runs in the future keeps nobody out. Every write carries the version that was read, so of
two who try at once one is refused.

In two points this is stricter than client-go, so that two never lead at once: a leader counts its lease from the
moment at which it asked for it, not from the answer, and one who sees that another leads stops at once. In one it is
quicker: a candidate sleeps no longer than somebody else's lease lasts, and does not stretch the retry period at random,
so that it leads within the lease's duration and one retry period after a leader has died.

The Lease is the one object that is written back whole, and so it is kept as it came, with every field it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec

from kubestow.api.timestamps import micro_timestamp
from kubestow.client.decoding import UNDECODABLE
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError, KubestowError, Unreachable
from kubestow.scheduling.ports import Clock, EventRecord, ObjectReference

__all__ = ["LeaderElector", "LeaseLost", "LeaseTimings"]

_log = logging.getLogger(__name__)

#: What client-go stretches retry periods by at most.
_RETRY_JITTER = 1.2
_EVENT = "LeaderElection"


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """In seconds; kube-scheduler's defaults. A Lease holds its ``duration`` in whole seconds.

    Raises InputError unless ``renew_deadline`` leaves time for a second try.
    """

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if self.renew_deadline <= _RETRY_JITTER * self.retry_period:
            raise InputError(
                "leaderElection",
                f"{self.renew_deadline:g} s must be greater than {_RETRY_JITTER} times retryPeriod"
                f" ({self.retry_period:g} s)",
                place="renewDeadline",
            )


class LeaseLost(KubestowError):
    """The lease could not be renewed in time, or somebody else has it: whoever led has to stop at once."""


class LeaderElector:
    """A candidacy for one Lease; implements :class:`kubestow.scheduling.leadership.Leadership`.

    Use: :meth:`acquire`, then work while :meth:`hold` runs beside it, then :meth:`release`. The transport should be one
    of its own, with a timeout of half the renew deadline. ``on_new_leader`` is told of every identity that leads,
    ``record`` of our own beginning and end as events of ``reporter``.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        identity: str,
        clock: Clock,
        namespace: str = "kube-system",
        name: str = "kube-scheduler",
        times: LeaseTimings = LeaseTimings(),
        on_new_leader: Callable[[str], None] = lambda identity: None,
        record: Callable[[EventRecord], None] = lambda event: None,
        reporter: str = "default-scheduler",
    ) -> None:
        self._transport, self._clock = transport, clock
        self._identity, self._times, self._on_new_leader = identity, times, on_new_leader
        self._namespace, self._name = namespace, name
        self._record, self._reporter = record, reporter
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] | None = None  # as last seen
        self._since = float("-inf")  # on our clock: when it was seen to change, or when we asked for our own change
        self.leader = ""

    @property
    def identity(self) -> str:
        """Who we are."""
        return self._identity

    @property
    def name(self) -> str:
        """The Lease, as namespace/name."""
        return f"{self._namespace}/{self._name}"

    @property
    def is_leader(self) -> bool:
        """Whether the lease, as last seen, is ours."""
        return self.leader == self._identity

    @property
    def overdue(self) -> float:
        """Seconds since our lease ran out without being renewed; negative or zero while all is well."""
        if not self.is_leader:
            return 0.0
        return self._clock.monotonic() - self._since - int(self._times.duration)

    async def acquire(self) -> None:
        """Return once we lead."""
        _log.info("waiting for the lease %s", self.name)
        while not await self._try():
            left = self._left_to_another()
            await self._clock.sleep(min(left, self._times.retry_period) if left > 0 else self._times.retry_period)
        _log.info("leading as %s", self._identity)
        self._tell("became leader")

    async def hold(self) -> NoReturn:
        """Keep the lease until that fails. Raises LeaseLost."""
        try:
            while await self._renewed():
                await self._clock.sleep(self._times.retry_period)
        finally:
            self._tell("stopped leading")
        raise LeaseLost(f"leader election lost: the lease {self.name} {self._loss()}")

    async def _renewed(self) -> bool:
        """Whether the lease was renewed before the deadline, and before others may take it.

        A process that was halted for longer than that may look once more: the lease is often still its own.
        """
        patience = max(min(self._times.renew_deadline, -self.overdue), self._times.retry_period)
        deadline = self._clock.monotonic() + patience
        try:
            # The transport may wait on a server that asks for patience; whatever happens, the deadline stands.
            async with asyncio.timeout(patience):
                while not await self._try():
                    await self._clock.sleep(self._times.retry_period)
                    if not self.is_leader or self._clock.monotonic() >= deadline:
                        return False
        except TimeoutError:
            return False
        return True

    def _loss(self) -> str:
        if self.leader and not self.is_leader:
            return f"is now held by {self.leader}"
        return f"could not be renewed within {self._times.renew_deadline:g} s"

    async def release(self) -> None:
        """Let go of the lease, so that the next leader need not wait for it to expire. Failures are only logged."""
        if not self.is_leader:
            return
        try:
            async with asyncio.timeout(self._times.renew_deadline):
                await self._read()
                if self.is_leader:
                    await self._update(self._spec(holder="", duration=1, acquired=True))
        except (APIError, Unreachable, TimeoutError) as error:
            _log.warning("cannot release the lease %s: %s", self.name, str(error) or "no answer in time")

    # -- one try

    async def _try(self) -> bool:
        """Take the lease, or renew it; whether we lead now.

        The transport may wait for long on a server that asks for patience; a candidate then looks again by itself.
        """
        try:
            async with asyncio.timeout(self._times.renew_deadline):
                return await self._take()
        except (APIError, Unreachable, TimeoutError) as error:
            _log.warning("cannot take or renew the lease %s: %s", self.name, str(error) or "no answer in time")
            return False

    async def _take(self) -> bool:
        if self.is_leader and self.overdue <= 0 and await self._renewed_blindly():
            return True
        try:
            await self._read()
        except APIError as error:
            if error.code != 404:
                raise
            await self._create()
            return True
        if self._left_to_another() > 0:
            return False
        await self._update(
            self._spec(holder=self._identity, duration=self._times.duration, acquired=not self.is_leader)
        )
        return True

    async def _renewed_blindly(self) -> bool:
        """Renew without reading first: while our lease is valid nobody else should have written it."""
        try:
            await self._update(self._spec(holder=self._identity, duration=self._times.duration, acquired=False))
        except APIError as error:
            _log.debug("renewing the lease without reading it first: %s", error)
            return False
        return True

    def _left_to_another(self) -> float:
        """For how many seconds somebody else's lease is still valid; 0 or less when none is."""
        if self._lease is None or not self.leader or self.is_leader:
            return 0.0
        duration = (self._lease.get("spec") or {}).get("leaseDurationSeconds") or 0
        return self._since + float(duration) - self._clock.monotonic()

    # -- the Lease

    def _spec(self, *, holder: str, duration: float, acquired: bool) -> dict[str, Any]:
        """What we want the spec to say; ``acquired`` when the lease changes hands with this write."""
        assert self._lease is not None
        now = micro_timestamp(self._clock.now())
        spec: dict[str, Any] = dict(self._lease.get("spec") or {})
        transitions = spec.get("leaseTransitions") or 0
        spec |= {"holderIdentity": holder, "leaseDurationSeconds": int(duration), "renewTime": now}
        if acquired:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = transitions + (1 if holder else 0)
        return spec

    async def _read(self) -> None:
        self._see(await self._transport.request("GET", f"{self._collection}/{self._name}"))

    async def _create(self) -> None:
        metadata = {"name": self._name, "namespace": self._namespace}
        self._lease = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata}
        spec = self._spec(holder=self._identity, duration=self._times.duration, acquired=True)
        spec["leaseTransitions"] = 0
        await self._write("POST", self._collection, spec)

    async def _update(self, spec: dict[str, Any]) -> None:
        await self._write("PUT", f"{self._collection}/{self._name}", spec)

    async def _write(self, method: str, path: str, spec: dict[str, Any]) -> None:
        assert self._lease is not None
        asked_at = self._clock.monotonic()
        self._see(await self._transport.request(method, path, msgspec.json.encode(self._lease | {"spec": spec})))
        self._since = asked_at

    def _see(self, body: bytes) -> None:
        """Take note of the lease as the server has it."""
        try:
            lease = msgspec.json.decode(body, type=dict[str, Any])
        except UNDECODABLE as error:
            raise Unreachable(self._transport.server, f"sent a Lease that is none: {error}") from None
        spec = lease.get("spec") or {}
        if self._lease is None or spec != self._lease.get("spec"):
            self._since = self._clock.monotonic()
        self._lease = lease
        leader = spec.get("holderIdentity") or ""
        if leader != self.leader:
            self.leader = leader
            if leader:
                self._on_new_leader(leader)

    def _tell(self, what: str) -> None:
        """Record an event about ourselves (semantics 1.7)."""
        metadata = (self._lease or {}).get("metadata") or {}
        lease = ObjectReference(
            "Lease",
            self._namespace,
            self._name,
            metadata.get("uid") or "",
            api_version="coordination.k8s.io/v1",
            resource_version=metadata.get("resourceVersion") or "",
        )
        note = f"{self._identity} {what}"
        self._record(EventRecord(lease, _EVENT, _EVENT, note, reporting_controller=self._reporter))
