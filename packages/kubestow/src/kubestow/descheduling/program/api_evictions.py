"""Evictions through the Eviction API: the server applies the disruption budgets.

The loop is synchronous and runs in a thread of its own, so that the event loop keeps serving metrics and renewing the
Lease. Each eviction is a request on the event loop that the thread waits for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import Any

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.descheduling.eviction import Eviction, Refusal, RefusedBy
from kubestow.errors import APIError, KubestowError, Unreachable

_REQUESTED_BY = "sigs.k8s.io/descheduler"


class LoopStopped(KubestowError):
    """The process is ending, so no further pod is evicted."""


class APIEvictions:
    """An eviction backend on an API server; ``stop`` ends a loop that is running in another thread."""

    def __init__(self, transport: Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._stopped = False
        self._request: concurrent.futures.Future[bytes] | None = None

    def stop(self) -> None:
        """Have the loop end with LoopStopped at its next eviction, or the one in progress."""
        self._stopped = True
        if self._request is not None:
            self._request.cancel()

    def evict(self, eviction: Eviction) -> Refusal | None:
        """Request an eviction and wait for the response. Raises LoopStopped. Not to be called on the event loop."""
        if self._stopped:
            raise LoopStopped("stopped")
        metadata = eviction.pod.metadata
        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        request = self._transport.request("POST", path, msgspec.json.encode(_body(eviction)))
        self._request = asyncio.run_coroutine_threadsafe(request, self._loop)
        try:
            self._request.result()
        except concurrent.futures.CancelledError:
            raise LoopStopped("stopped") from None
        except (APIError, Unreachable) as error:
            return Refusal(RefusedBy.API_SERVER, str(error))
        return None


def _body(eviction: Eviction) -> dict[str, Any]:
    """An Eviction of exactly this pod: another one of its name, created since, is not evicted."""
    metadata = eviction.pod.metadata
    options: dict[str, Any] = {"preconditions": {"uid": metadata.uid}}
    if eviction.grace_period is not None:
        options["gracePeriodSeconds"] = eviction.grace_period
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "annotations": {"reason": eviction.explanation, "requested-by": _REQUESTED_BY},
        },
        "deleteOptions": options,
    }
