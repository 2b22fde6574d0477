"""Events are forgotten an hour after they were last written, as an API server forgets them."""

from __future__ import annotations

import asyncio

from kubestow.devcluster.controllers.controller import Controller, Happening, World

__all__ = ["EventExpiry"]

#: Seconds for which an event is kept: kube-apiserver's ``--event-ttl``.
TIME_TO_LIVE = 3600.0
#: Events forgotten in one go.
BATCH = 500
#: The key of all the work there is.
_OLDEST = ""


class EventExpiry(Controller):
    resource = "events"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: When each event was last written, in the loop's time, the oldest first.
        self._written: dict[str, float] = {}

    def observe(self, happening: Happening) -> None:
        if happening.resource != self.resource:
            return
        self._written.pop(happening.key, None)
        if happening.event.type != "DELETED":
            if not self._written:
                self.reconcile_after(_OLDEST, TIME_TO_LIVE)
            self._written[happening.key] = asyncio.get_running_loop().time()

    def reconcile(self, key: str) -> None:
        over = asyncio.get_running_loop().time() - TIME_TO_LIVE
        for event, written in list(self._written.items())[:BATCH]:
            if written > over:
                self.reconcile_after(_OLDEST, written - over)
                return
            del self._written[event]
            stored = self.registry.store.collection(self.resource).get(event)
            if stored is not None:
                self.registry.commit_deletion(self.kind, self.kind.decode(stored))
        if self._written:
            self.reconcile_soon(_OLDEST)
