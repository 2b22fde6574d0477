"""Deletion of events some time after their last update.

A real cluster stores events with an etcd lease instead (kube-apiserver's ``--event-ttl``).
"""

from __future__ import annotations

import asyncio
from itertools import islice

from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange

__all__ = ["EventTTLController"]

#: Events deleted per reconciliation.
BATCH = 500
#: The only key in the queue: each reconciliation deletes the events that have expired.
_SWEEP = ""


class EventTTLController(Controller):
    resource = "events"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._ttl = context.event_ttl
        #: When each event was last updated, in the loop's time, oldest first.
        self._updated: dict[str, float] = {}

    def handle_change(self, change: ObjectChange) -> None:
        self._updated.pop(change.key, None)
        if not change.is_deletion:
            if not self._updated:
                self.enqueue_after(_SWEEP, self._ttl)
            self._updated[change.key] = asyncio.get_running_loop().time()

    def reconcile(self, key: str) -> None:
        expired_before = asyncio.get_running_loop().time() - self._ttl
        for event, updated in list(islice(self._updated.items(), BATCH)):
            if updated > expired_before:
                self.enqueue_after(_SWEEP, updated - expired_before)
                return
            del self._updated[event]
            stored = self.registry.store.collection(self.resource).get(event)
            if stored is not None:
                self.registry.commit_deletion(self.kind, self.kind.decode(stored))
        if self._updated:
            self.enqueue(_SWEEP)
