"""Leader election: of several schedulers only the one that holds a Lease works.

The rules are client-go's (reference 1.3). A candidate tries to take the lease every retry period; the leader renews it
as often, and gives up when it has not succeeded for the renew deadline. Somebody else's lease counts as expired when it
has not changed for a lease duration *on our own clock*: the times written in it are for people to read, so clocks need
not agree. Every write carries the version that was read, so of two who try at once one is refused.

The Lease is the one object that is written back whole, and so it is kept as it came, with every field it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, NoReturn

import msgspec

from kubestow.client.decoding import UNDECODABLE
from kubestow.client.pacing import SleepingClock, jittered
from kubestow.client.transport import Transport
from kubestow.errors import APIError, KubestowError, Unreachable

__all__ = ["LeaderElection", "LeaseLost", "LeaseTimes"]

_log = logging.getLogger(__name__)

_RETRY_JITTER = 1.2


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """In seconds; kube-scheduler's defaults. ``duration`` > ``renew_deadline`` > 1.2 * ``retry_period``."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0


class LeaseLost(KubestowError):
    """The lease could not be renewed in time, or somebody else has it: whoever led has to stop at once."""


class LeaderElection:
    """A candidacy for one Lease.

    Use: :meth:`acquire`, then work while :meth:`hold` runs beside it, then :meth:`release`. The transport should be one
    of its own, with a timeout of half the renew deadline. ``on_new_leader`` is told of every identity that leads.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        identity: str,
        clock: SleepingClock,
        random: Random,
        namespace: str = "kube-system",
        name: str = "kube-scheduler",
        times: LeaseTimes = LeaseTimes(),
        on_new_leader: Callable[[str], None] = lambda identity: None,
    ) -> None:
        self._transport, self._clock, self._random = transport, clock, random
        self._identity, self._times, self._on_new_leader = identity, times, on_new_leader
        self._namespace, self._name = namespace, name
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._lease: dict[str, Any] | None = None  # as last seen
        self._seen_at = float("-inf")  # when it last changed, on our clock
        self.leader = ""

    @property
    def is_leader(self) -> bool:
        """Whether the lease, as last seen, is ours."""
        return self.leader == self._identity

    @property
    def overdue(self) -> float:
        """Seconds since our lease ran out without being renewed; negative or zero while all is well."""
        if not self.is_leader:
            return 0.0
        return self._clock.monotonic() - self._seen_at - self._times.duration

    async def acquire(self) -> None:
        """Return once we lead."""
        _log.info("waiting for the lease %s/%s", self._namespace, self._name)
        while not await self._try():
            await self._clock.sleep(jittered(self._times.retry_period, _RETRY_JITTER, self._random))
        _log.info("leading as %s", self._identity)

    async def hold(self) -> NoReturn:
        """Keep the lease until that fails. Raises LeaseLost."""
        while True:
            try:
                # The transport may wait on a server that asks for patience; whatever happens, the deadline stands.
                async with asyncio.timeout(self._times.renew_deadline):
                    renewed = await self._renew_before_deadline()
            except TimeoutError:
                renewed = False
            if not renewed:
                raise LeaseLost(f"the lease {self._namespace}/{self._name} {self._loss()}")
            await self._clock.sleep(self._times.retry_period)

    async def _renew_before_deadline(self) -> bool:
        deadline = self._clock.monotonic() + self._times.renew_deadline
        while not await self._try():
            await self._clock.sleep(self._times.retry_period)
            if self._clock.monotonic() >= deadline:
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
            await self._read()
            if self.is_leader:
                await self._update(self._spec(holder="", duration=1, acquired=True))
        except (APIError, Unreachable) as error:
            _log.warning("cannot release the lease %s/%s: %s", self._namespace, self._name, error)

    # -- one try

    async def _try(self) -> bool:
        """Take the lease, or renew it; whether we lead now."""
        try:
            return await self._take()
        except (APIError, Unreachable) as error:
            _log.warning("cannot take or renew the lease %s/%s: %s", self._namespace, self._name, error)
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
        if self._held_by_another():
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

    def _held_by_another(self) -> bool:
        valid = self._clock.monotonic() - self._seen_at < self._times.duration
        return bool(self.leader) and not self.is_leader and valid

    # -- the Lease

    def _spec(self, *, holder: str, duration: float, acquired: bool) -> dict[str, Any]:
        """What we want the spec to say; ``acquired`` when the lease changes hands with this write."""
        assert self._lease is not None
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
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
        body = msgspec.json.encode(self._lease | {"spec": spec})
        self._see(await self._transport.request("POST", self._collection, body))

    async def _update(self, spec: dict[str, Any]) -> None:
        assert self._lease is not None
        body = msgspec.json.encode(self._lease | {"spec": spec})
        self._see(await self._transport.request("PUT", f"{self._collection}/{self._name}", body))

    def _see(self, body: bytes) -> None:
        """Take note of the lease as the server has it."""
        try:
            lease = msgspec.json.decode(body, type=dict[str, Any])
        except UNDECODABLE as error:
            raise Unreachable(self._transport.server, f"sent a Lease that is none: {error}") from None
        spec = lease.get("spec") or {}
        if self._lease is None or spec != self._lease.get("spec"):
            self._seen_at = self._clock.monotonic()
        self._lease = lease
        leader = spec.get("holderIdentity") or ""
        if leader != self.leader:
            self.leader = leader
            if leader:
                self._on_new_leader(leader)
