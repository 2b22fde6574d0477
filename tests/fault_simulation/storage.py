"""Volumes and claims: who makes them, who binds them, and what must hold of pods that mount them.

Every volume is local to a node. Some claims are for one pod at a time, and some pods bring a disk that only one pod of
a node may use. A controller binds what a scheduler has promised, and takes back what nobody claims any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NoReturn

from kubestow.api.core import Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.testing.storage import claim, mounting, storage_class, volume
from tests.fault_simulation.rounds import make_rounds
from tests.fault_simulation.server import Server, ended

__all__ = ["Storage", "claims_of", "disks_of", "volume_objections"]

_ALONE, _SHARED = "ReadWriteOncePod", "ReadWriteOnce"
_CLAIMS = {"data-0": _SHARED, "data-1": _SHARED, "data-2": _ALONE, "data-3": _ALONE}


class Storage:
    """The storage administrator and the volume controller."""

    def __init__(self, server: Server, random: Random) -> None:
        self._server, self._random = server, random
        self._made = 0
        #: Whether claims are made anew for no reason.
        self.restless = True

    async def live(self) -> NoReturn:
        """Until cancelled."""
        self._server.put(storage_class())
        for name in _CLAIMS:
            self._put_claim(name)
        await make_rounds(self._server, self._random, self._look)

    def _look(self) -> bool:
        self._make_volumes()
        self._take_back()
        self._bind()
        if self.restless and self._random.random() < 0.02:
            self._replace_claim()
        return self.restless

    def wishes(self) -> dict[str, Any]:
        """The part of a new pod's spec that mounts something, if anything."""
        if self._random.random() < 0.5:
            return mounting(self._random.choice(list(_CLAIMS)))
        return mounting(inline=[{"gcePersistentDisk": {"pdName": self._random.choice(("disk-0", "disk-1"))}}])

    def _put_claim(self, name: str) -> None:
        self._made += 1
        self._server.put(claim(name, modes=[_CLAIMS[name]], metadata={"uid": f"uid-{name}-{self._made}"}))

    def _replace_claim(self) -> None:
        """Delete a claim that nobody uses, and make it anew."""
        used = {name for pod in self._server.pods() if not ended(pod) for name in claims_of(pod)}
        idle = [there for there in self._server.objects(PersistentVolumeClaim) if there.metadata.name not in used]
        if idle:
            gone = self._random.choice(idle)
            self._server.remove(gone)
            self._put_claim(gone.metadata.name)

    def _make_volumes(self) -> None:
        """A volume on every node that has none."""
        there = {there.metadata.name for there in self._server.objects(PersistentVolume)}
        for name in self._server.nodes():
            if f"pv-{name}" not in there:
                self._server.put(_volume(name))

    def _take_back(self) -> None:
        """Free volumes whose claim is gone."""
        uids = {there.metadata.uid for there in self._server.objects(PersistentVolumeClaim)}
        for there in self._server.objects(PersistentVolume):
            if there.spec.claim_ref is not None and there.spec.claim_ref.uid not in uids:
                self._server.put(_volume(there.metadata.name.removeprefix("pv-")))

    def _bind(self) -> None:
        """Bind claims to the volumes that have been promised to them."""
        claims = {there.metadata.uid: there for there in self._server.objects(PersistentVolumeClaim)}
        for there in self._server.objects(PersistentVolume):
            wanted = there.spec.claim_ref and claims.get(there.spec.claim_ref.uid)
            if wanted and not wanted.spec.volume_name:
                name, uid = wanted.metadata.name, wanted.metadata.uid
                self._server.put(claim(name, volume=there.metadata.name, modes=[_CLAIMS[name]], metadata={"uid": uid}))


def _volume(node_name: str) -> PersistentVolume:
    """An unclaimed volume of a node."""
    name = f"pv-{node_name}"
    return volume(name, host=node_name, modes=(_SHARED, _ALONE), metadata={"uid": f"uid-{name}"})


def claims_of(pod: Pod) -> list[str]:
    """The claims that a pod mounts, by name."""
    sources = (there.persistent_volume_claim for there in pod.spec.volumes)
    return [source.claim_name for source in sources if source is not None]


def disks_of(pod: Pod) -> set[str]:
    """The disks that a pod brings along."""
    disks = (there.gce_persistent_disk for there in pod.spec.volumes)
    return {disk.pd_name for disk in disks if disk is not None}


def volume_objections(
    pod: Pod,
    node_name: str,
    *,
    placed: Iterable[tuple[Pod, str]],
    claims: Iterable[PersistentVolumeClaim],
    volumes: Iterable[PersistentVolume],
) -> Iterator[str]:
    """Why the volumes of a pod keep it from a node, given the pods on all nodes, each with its node's name."""
    name, volumes, by_name = pod.metadata.name, list(volumes), {there.metadata.name: there for there in claims}
    others = [(other, where) for other, where in placed if other.metadata.uid != pod.metadata.uid]
    for other, where in others:
        if where == node_name and (both := disks_of(pod) & disks_of(other)):
            yield f"{name} must not share {sorted(both)} on {node_name} with {other.metadata.name}"
    for wanted in claims_of(pod):
        found = by_name.get(wanted)
        if found is None:
            yield f"{name} must wait for its claim {wanted}"
            continue
        if _ALONE in found.spec.access_modes and any(wanted in claims_of(other) for other, _ in others):
            yield f"{name} must have the claim {wanted} for itself"
        yield from _unreachable(found, node_name, volumes)


def _unreachable(found: PersistentVolumeClaim, node_name: str, volumes: list[PersistentVolume]) -> Iterator[str]:
    if found.spec.volume_name:
        if found.spec.volume_name != f"pv-{node_name}":
            yield f"claim {found.metadata.name} is bound to {found.spec.volume_name}, out of reach of {node_name}"
        return
    local = next((there for there in volumes if there.metadata.name == f"pv-{node_name}"), None)
    if local is None or (local.spec.claim_ref is not None and local.spec.claim_ref.uid != found.metadata.uid):
        yield f"claim {found.metadata.name} finds no free volume on {node_name}"
