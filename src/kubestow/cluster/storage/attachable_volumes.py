"""What stands behind a pod's volumes: for each, the CSI driver that will attach it and the driver's name for it.

Claims lead to volumes and those to drivers; a claim that has no volume yet leads to its storage class's provisioner;
in-tree volumes lead to the CSI driver that has taken them over, on nodes where it has (semantics 8.11).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kubestow.api.core import Volume
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.storage.csi_migration import in_tree_plugin, plugin_named, volume_handle
from kubestow.cluster.storage.pod_volumes import PodClaim, claim_of, ownership_problem
from kubestow.errors import InvalidObject

__all__ = ["CSIVolume", "Dependency", "PodVolumeResolver", "ResolvedVolume"]

#: An object that an answer depends on: ("claim", namespace, name), ("volume", name) or ("class", name).
Dependency = tuple[str, ...]
Note = Callable[[Dependency], None]


class CSIVolume(NamedTuple):
    """A volume as its CSI driver knows it."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class ResolvedVolume:
    """One volume that a pod brings to a node.

    One that is ``in_tree`` counts only on nodes where its plugin has been migrated. QUIRK: as this can't be switched
    off any more, that is wherever there is a CSINode, whatever it reports. Instead of a volume there may be a
    ``problem``; ``missing`` says that it is a claim that is not there (yet).
    """

    volume: CSIVolume | None = None
    in_tree: bool = False
    problem: str = ""
    missing: bool = False


class PodVolumeResolver:
    """Looks up what stands behind volumes."""

    def __init__(
        self,
        claims: Catalog[PersistentVolumeClaim],
        volumes: Catalog[PersistentVolume],
        classes: Catalog[StorageClass],
    ) -> None:
        self._claims, self._volumes, self._classes = claims, volumes, classes

    def resolve(self, pod: PodInfo, note: Note = lambda _: None) -> Iterator[ResolvedVolume]:
        """What a pod brings, in the order of its volumes; ``note`` hears of every object that the answer depends on."""
        for volume in pod.spec.volumes:
            claim = claim_of(pod, volume)
            use = _inline_use(volume) if claim is None else self._claim_use(pod, claim, note)
            if use is not None:
                yield use

    def _claim_use(self, pod: PodInfo, wanted: PodClaim, note: Note) -> ResolvedVolume | None:
        if not wanted.name:
            return ResolvedVolume(problem="PersistentVolumeClaim had no name")
        note(("claim", pod.namespace, wanted.name))
        claim = self._claims.get(pod.namespace, wanted.name)
        if claim is None:
            missing = f'persistentvolumeclaim "{wanted.name}" not found'
            return ResolvedVolume(problem=f"looking up PVC {pod.namespace}/{wanted.name}: {missing}", missing=True)
        if wanted.ephemeral and (problem := ownership_problem(pod, claim)):
            return ResolvedVolume(problem=problem)
        if claim.spec.volume_name:
            note(("volume", claim.spec.volume_name))
            volume = self._volumes.get("", claim.spec.volume_name)
            if volume is not None:
                return _volume_use(volume)
        return self._unprovided_use(claim, note)

    def _unprovided_use(self, claim: PersistentVolumeClaim, note: Note) -> ResolvedVolume | None:
        """A claim without a volume counts as one volume of whoever will provide it."""
        note(("class", claim.storage_class))
        storage_class = self._classes.get("", claim.storage_class)
        if storage_class is None or not storage_class.provisioner:
            return None
        handle = f"claim {claim.key}"
        plugin = plugin_named(storage_class.provisioner)
        if plugin is None:
            return ResolvedVolume(CSIVolume(storage_class.provisioner, handle))
        return ResolvedVolume(CSIVolume(plugin.driver, handle), in_tree=True) if plugin.migrates else None


def _inline_use(volume: Volume) -> ResolvedVolume | None:
    plugin = in_tree_plugin(volume)
    if plugin is None or not plugin.migrates:
        return None
    try:
        return ResolvedVolume(CSIVolume(plugin.driver, volume_handle(plugin, volume)), in_tree=True)
    except InvalidObject as error:
        return ResolvedVolume(problem=f"converting volume({volume.name}) from inline to csi: {error}", in_tree=True)


def _volume_use(volume: PersistentVolume) -> ResolvedVolume | None:
    csi = volume.spec.csi
    if csi is not None:
        return ResolvedVolume(CSIVolume(csi.driver, csi.volume_handle)) if csi.driver and csi.volume_handle else None
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not plugin.migrates:
        return None
    try:
        handle = volume_handle(plugin, volume.spec, volume.metadata.labels)
    except InvalidObject:
        return None  # what cannot be translated is not counted
    return ResolvedVolume(CSIVolume(plugin.driver, handle), in_tree=True) if handle else None
