"""A simulated storage administrator and volume controller.

Every volume is local to a node. Some claims are ReadWriteOncePod, and some pods have an inline disk that only one pod
per node can mount. The controller binds claims to the volumes that a scheduler has selected, and releases volumes of
deleted claims. Some claims, and the volume of one node, are created after the faults, when pods have waited for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NoReturn

from kubestow.api.core import Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.testing.storage import claim, mounting, storage_class, volume
from kubestow_lab.fault_simulation.actors import run_control_loop
from kubestow_lab.fault_simulation.actors.users import CreatePod
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer, ended

READ_WRITE_ONCE_POD, _READ_WRITE_ONCE = "ReadWriteOncePod", "ReadWriteOnce"
_CLAIMS = {
    "data-0": _READ_WRITE_ONCE,
    "data-1": _READ_WRITE_ONCE,
    "data-2": READ_WRITE_ONCE_POD,
    "data-3": READ_WRITE_ONCE_POD,
    "data-late": _READ_WRITE_ONCE,
    "data-of-late-volume": _READ_WRITE_ONCE,
}
#: How many of them the pods of users mount.
_DRAWN_CLAIMS = 5
_LATE_CLAIMS, _LATE_NODE = ("data-late", "data-of-late-volume"), "node-1"


class Storage:
    """Creates volumes and claims, and binds and releases them."""

    def __init__(self, server: SimulatedServer, random: Random) -> None:
        self._server, self._random = server, random
        self._created = 0
        #: Whether unused claims are recreated at random.
        self.churn = True
        #: The names of the objects that are yet to be created.
        self._late = {*_LATE_CLAIMS, f"pv-{_LATE_NODE}"}

    def helpful_changes(self, create_pod: CreatePod) -> Iterator[Callable[[], None]]:
        """Changes that can make pods schedulable, to be made one after the other; first pods that wait for them."""

        def await_late_claims() -> None:
            create_pod(mounting("data-late"), "")
            create_pod(mounting("data-of-late-volume"), _LATE_NODE)

        yield from (await_late_claims, self._create_late_claims, self._create_late_volume)

    def _create_late_claims(self) -> None:
        self._late.difference_update(_LATE_CLAIMS)
        for name in _LATE_CLAIMS:
            self._put_claim(name)

    def _create_late_volume(self) -> None:
        self._late.clear()
        self._create_volumes()

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        self._server.put(storage_class())
        for name in (each for each in _CLAIMS if each not in self._late):
            self._put_claim(name)
        await run_control_loop(self._server, self._random, self._reconcile)

    def _reconcile(self) -> bool:
        self._create_volumes()
        self._release_volumes()
        self._bind_claims()
        if self.churn and self._random.random() < 0.02:
            self._replace_claim()
        return self.churn

    def spec_part(self) -> dict[str, Any]:
        """A random part of a pod spec that mounts a claim or a disk."""
        if self._random.random() < 0.5:
            return mounting(self._random.choice(list(_CLAIMS)[:_DRAWN_CLAIMS]))
        return mounting(inline=[{"gcePersistentDisk": {"pdName": self._random.choice(("disk-0", "disk-1"))}}])

    def _put_claim(self, name: str) -> None:
        self._created += 1
        self._server.put(claim(name, modes=[_CLAIMS[name]], metadata={"uid": f"uid-{name}-{self._created}"}))

    def _replace_claim(self) -> None:
        """Delete and recreate a claim that no pod uses."""
        used = {name for pod in self._server.pods() if not ended(pod) for name in claims_of(pod)}
        unused = [each for each in self._server.objects(PersistentVolumeClaim) if each.metadata.name not in used]
        if unused:
            chosen = self._random.choice(unused)
            self._server.remove(chosen)
            self._put_claim(chosen.metadata.name)

    def _create_volumes(self) -> None:
        """Create a volume on every node without one."""
        existing = {each.metadata.name for each in self._server.objects(PersistentVolume)}
        for name in self._server.nodes():
            if f"pv-{name}" not in existing | self._late:
                self._server.put(_volume(name))

    def _release_volumes(self) -> None:
        """Release the volumes of deleted claims."""
        uids = {each.metadata.uid for each in self._server.objects(PersistentVolumeClaim)}
        for each in self._server.objects(PersistentVolume):
            if each.spec.claim_ref is not None and each.spec.claim_ref.uid not in uids:
                self._server.put(_volume(each.metadata.name.removeprefix("pv-")))

    def _bind_claims(self) -> None:
        """Bind claims to the volumes that refer to them."""
        claims = {each.metadata.uid: each for each in self._server.objects(PersistentVolumeClaim)}
        for each in self._server.objects(PersistentVolume):
            found = each.spec.claim_ref and claims.get(each.spec.claim_ref.uid)
            if found and not found.spec.volume_name:
                name, uid = found.metadata.name, found.metadata.uid
                self._server.put(claim(name, volume=each.metadata.name, modes=[_CLAIMS[name]], metadata={"uid": uid}))


def _volume(node_name: str) -> PersistentVolume:
    """An unclaimed volume of a node."""
    name = f"pv-{node_name}"
    return volume(name, host=node_name, modes=(_READ_WRITE_ONCE, READ_WRITE_ONCE_POD), metadata={"uid": f"uid-{name}"})


def claims_of(pod: Pod) -> list[str]:
    """The names of the claims that a pod mounts."""
    sources = (each.persistent_volume_claim for each in pod.spec.volumes)
    return [source.claim_name for source in sources if source is not None]


def disks_of(pod: Pod) -> set[str]:
    """The names of the inline disks of a pod."""
    disks = (each.gce_persistent_disk for each in pod.spec.volumes)
    return {disk.pd_name for disk in disks if disk is not None}
