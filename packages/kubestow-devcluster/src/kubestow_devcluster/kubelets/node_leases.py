"""Heartbeats: a Lease per node in kube-node-lease, renewed while the node's kubelet runs.

Nodes are spread over :data:`_SLOTS` slots, and each tick renews the nodes of one slot, so the cost is even over time:
about ten microseconds per node and interval.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable

from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.resources import Kind, Object
from kubestow_devcluster.kubelets.timers import Timers
from kubestow_devcluster.node_heartbeats import LEASE_DURATION, LEASE_NAMESPACE, RENEW_INTERVAL

__all__ = ["NodeLeases"]

#: Slots per renewal interval.
_SLOTS = 10

_log = logging.getLogger(__name__)


class NodeLeases:
    """Renews each node's lease every ``renew_interval`` seconds; calls ``on_heartbeat`` with the node's name before."""

    def __init__(
        self,
        registry: Registry,
        timers: Timers,
        on_heartbeat: Callable[[str], None],
        *,
        renew_interval: float = RENEW_INTERVAL,
    ) -> None:
        self._registry, self._timers, self._on_heartbeat = registry, timers, on_heartbeat
        self._kind: Kind = registry.scheme["leases.coordination.k8s.io"]
        self._collection = registry.store.collection(self._kind.storage)
        self._tick_interval = renew_interval / _SLOTS
        #: Per slot, the uid of each node by its name.
        self._slots: list[dict[str, str]] = [{} for _ in range(_SLOTS)]
        self._slot_of: dict[str, int] = {}
        self._sequence = itertools.count()
        self._is_ticking = False

    def start(self, node: str, uid: str) -> None:
        """Renew the node's lease now and from now on; does nothing if it is renewed already."""
        slot = self._slot_of.setdefault(node, next(self._sequence) % _SLOTS)
        if self._slots[slot].get(node) == uid:
            return
        self._slots[slot][node] = uid
        self._renew(node, uid, micro_timestamp(self._registry.clock()))
        if not self._is_ticking:
            self._is_ticking = True
            self._timers.call_later(self._tick_interval, lambda: self._tick(0))

    def stop(self, node: str) -> None:
        """Stop renewing the node's lease."""
        slot = self._slot_of.pop(node, None)
        if slot is not None:
            self._slots[slot].pop(node, None)

    def _tick(self, slot: int) -> None:
        if not self._slot_of:
            self._is_ticking = False
            return
        self._timers.call_later(self._tick_interval, lambda: self._tick((slot + 1) % _SLOTS))
        now = micro_timestamp(self._registry.clock())
        for node, uid in list(self._slots[slot].items()):
            self._on_heartbeat(node)
            self._renew(node, uid, now)

    def _renew(self, node: str, uid: str, now: str) -> None:
        stored = self._collection.get(f"{LEASE_NAMESPACE}/{node}")
        if stored is None:
            self._create(node, uid, now)
            return
        lease = self._kind.decode(stored)
        lease["spec"] = lease["spec"] | {"holderIdentity": node, "renewTime": now}
        self._registry.commit(self._kind, lease)

    def _create(self, node: str, uid: str, now: str) -> None:
        owner_reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        lease: Object = {
            "metadata": {"name": node, "ownerReferences": [owner_reference]},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_DURATION, "renewTime": now},
        }
        try:
            self._registry.create(self._kind, LEASE_NAMESPACE, lease)
        except statuses.StatusError as failure:
            # The namespace may be deleted. The next renewal tries again, and the other nodes are not affected.
            _log.info(
                "lease of node %s not created: %s", node, failure.message, extra=fields(node=node, err=failure.message)
            )
