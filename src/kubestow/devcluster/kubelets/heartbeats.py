"""Heartbeats: a lease per node in kube-node-lease, renewed as long as its kubelet runs.

Nodes are dealt out over as many slots as a renewal interval has seconds, and each second one slot is renewed, so that
the cost is spread evenly: some ten microseconds a node every ten seconds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from kubestow.api.timestamps import micro_timestamp
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.kubelets.timers import Timetable

__all__ = ["GRACE_PERIOD", "INTERVAL", "Heartbeats"]

#: Seconds between two renewals, and for how long one counts: a kubelet's defaults.
INTERVAL, DURATION = 10.0, 40
#: Seconds without any after which a node is taken to be lost; kube-controller-manager's default.
GRACE_PERIOD = 50.0
NAMESPACE = "kube-node-lease"
#: Renewal slots in an interval.
_SLOTS = 10


class Heartbeats:
    """``beat`` is called with each node's name when its turn comes, before the lease is renewed.

    ``interval`` is the time between two renewals of a lease in seconds.
    """

    def __init__(
        self, registry: Registry, timetable: Timetable, beat: Callable[[str], None], *, interval: float = INTERVAL
    ) -> None:
        self._registry, self._timetable, self._beat = registry, timetable, beat
        self._leases: Kind = registry.catalog["leases.coordination.k8s.io"]
        self._collection = registry.store.collection(self._leases.storage)
        self._interval = interval
        self._slots: list[dict[str, str]] = [{} for _ in range(_SLOTS)]
        self._slot_of: dict[str, int] = {}
        self._numbers = itertools.count()
        self._running = False

    def begin(self, node: str, uid: str) -> None:
        """The kubelet of a node runs; from now on its lease is renewed."""
        number = self._slot_of.setdefault(node, next(self._numbers) % _SLOTS)
        if self._slots[number].get(node) == uid:
            return
        self._slots[number][node] = uid
        self._renew(node, uid, micro_timestamp(self._registry.moment()))
        if not self._running:
            self._running = True
            self._timetable.after(self._interval / _SLOTS, lambda: self._tick(0))

    def end(self, node: str) -> None:
        """It does not run any more."""
        number = self._slot_of.pop(node, None)
        if number is not None:
            self._slots[number].pop(node, None)

    def _tick(self, slot: int) -> None:
        if not self._slot_of:
            self._running = False
            return
        self._timetable.after(self._interval / _SLOTS, lambda: self._tick((slot + 1) % _SLOTS))
        now = micro_timestamp(self._registry.moment())
        for node, uid in list(self._slots[slot].items()):
            self._beat(node)
            self._renew(node, uid, now)

    def _renew(self, node: str, uid: str, now: str) -> None:
        stored = self._collection.get(f"{NAMESPACE}/{node}")
        if stored is None:
            self._create(node, uid, now)
            return
        lease = self._leases.decode(stored)
        lease["spec"] = lease["spec"] | {"holderIdentity": node, "renewTime": now}
        self._registry.commit(self._leases, lease)

    def _create(self, node: str, uid: str, now: str) -> None:
        if self._registry.store.collection("namespaces").get(NAMESPACE) is None:
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        lease: Object = {
            "metadata": {"name": node, "ownerReferences": [owner]},
            "spec": {"holderIdentity": node, "leaseDurationSeconds": DURATION, "renewTime": now},
        }
        self._registry.create(self._leases, NAMESPACE, lease)
