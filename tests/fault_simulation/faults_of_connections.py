"""Faults of everything beyond the process: lists and watches, requests, the lease, extenders, flight records."""

from __future__ import annotations

from typing import Any

from kubestow.client.leader_election import LeaderElector
from kubestow.client.reflector import Reflector, _Collection, _Failures
from kubestow.client.watch_decoding import ListPage
from kubestow.errors import APIError, Unreachable
from kubestow.flight_record.journal import Journal
from kubestow.framework.status import Code
from kubestow.scheduling.api_calls.retries import Retries, is_refusal
from kubestow.scheduling.cycle.binding_cycle import BindingCycles
from kubestow.scheduling.events.handlers import EventHandlers
from kubestow_lab.fault_simulation.apiserver.watch_view import WatchView
from kubestow_lab.fault_simulation.faults import Fault
from kubestow_lab.fault_simulation.scenario import Part
from tests.fault_simulation.planting import PlantedFault, around, both, every, nothing_async, replaced


def _resumed_at_its_beginning(watch: Any) -> Any:
    async def changed(self: Reflector, **query: str) -> None:
        start = self._resource_version
        try:
            await watch(self, **query)
        finally:
            if start and self._resource_version:
                self._resource_version = start

    return changed


def _line_keeps_version(handle_line: Any) -> Any:
    def changed(self: Reflector, line: bytes) -> None:
        version = self._resource_version
        try:
            handle_line(self, line)
        except APIError:
            self._resource_version = version
            raise

    return changed


def _error_keeps_version(handle: Any) -> Any:
    async def changed(self: Reflector, error: APIError) -> None:
        version = self._resource_version
        await handle(self, error)
        self._resource_version = self._resource_version or version

    return changed


def _never_given_up(init: Any) -> Any:
    def changed(self: Reflector, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords | {"idle_timeout": 1e6})

    return changed


def _malformed_is_skipped(handle_line: Any) -> Any:
    def changed(self: Reflector, line: bytes) -> None:
        try:
            handle_line(self, line)
        except Unreachable:
            return

    return changed


async def _first_page(self: _Collection, limit: int, *, any_version: bool) -> tuple[str, list[Any]]:
    self._decoder.begin_list()
    page = ListPage.parse(await self._transport.request("GET", self.path({"limit": str(limit)})))
    decoded = map(self._decoder.decode, page.items or [])
    return page.metadata.resource_version, [obj for obj in decoded if obj is not None]


async def _read_at_once(self: Retries, subject: str, read: Any) -> Any:
    while True:
        try:
            return await read()
        except (APIError, Unreachable) as error:
            if is_refusal(error):
                raise


async def _believes_extender(self: Any, context: Any) -> Any:
    status = await self._extenders.bind(context.info, context.node_name)
    return None if status is not None and status.code is Code.SKIP else status


def _fails_with_the_disk(flush: Any) -> Any:
    def changed(self: Journal) -> None:
        before = self.dropped
        flush(self)
        if self.dropped > before:
            raise OSError("no space left on device")

    return changed


WATCHES = [
    PlantedFault("the watch drops an event", around(WatchView, "apply", every(50))),
    PlantedFault("a list does not show deletions", replaced(EventHandlers, "_known_keys", lambda *_: [])),
    PlantedFault(
        "a watch is resumed where it began",
        around(Reflector, "_watch", _resumed_at_its_beginning),
        required=(Part.HTTP,),
        often=(Fault.BREAKS,),
    ),
    PlantedFault(
        "a watch that has expired is not listed anew",
        both(
            around(Reflector, "_handle_line", _line_keeps_version),
            around(Reflector, "_handle_api_error", _error_keeps_version),
        ),
        required=(Part.HTTP,),
        often=(Fault.BREAKS, Fault.EXPIRY),
    ),
    PlantedFault(
        "a watch that is silent is never given up",
        around(Reflector, "__init__", _never_given_up),
        required=(Part.HTTP,),
    ),
    PlantedFault(
        "a malformed event is skipped",
        around(Reflector, "_handle_line", _malformed_is_skipped),
        required=(Part.HTTP,),
        often=(Fault.MALFORMED,),
    ),
    PlantedFault("a list ends with its first page", replaced(_Collection, "read", _first_page), required=(Part.HTTP,)),
    PlantedFault(
        "a watch that failed is tried again at once",
        replaced(_Failures, "back_off", nothing_async),
        required=(Part.HTTP, Part.OUTAGES),
    ),
    PlantedFault(
        "a pod is read again and again at once",
        replaced(Retries, "retry_until_answered", _read_at_once),
        required=(Part.OUTAGES,),
    ),
]

LEASES = [
    PlantedFault(
        "a lease is taken before it expires",
        replaced(LeaderElector, "left_to_other_holder", property(lambda self: 0.0)),
        required=(Part.ELECTION,),
    ),
    PlantedFault(
        "a lease that has expired counts as held",
        replaced(LeaderElector, "overdue", property(lambda self: 0.0)),
        required=(Part.ELECTION, Part.STALLS),
        often=(Fault.SUSPENDED,),
    ),
    PlantedFault(
        "any holder of the lease counts as this process",
        replaced(LeaderElector, "is_leader", property(lambda self: bool(self.leader))),
        required=(Part.ELECTION,),
    ),
]

EXTENDERS = [
    PlantedFault(
        "an extender that fails to answer has bound nothing",
        replaced(BindingCycles, "_bind_by_extender", _believes_extender),
        required=(Part.EXTENDERS,),
    ),
]

RECORDS = [
    PlantedFault(
        "a full disk under a flight record stops the scheduler",
        around(Journal, "flush", _fails_with_the_disk),
        required=(Part.RECORDS,),
    ),
]
