"""The CSI volumes of a pod: for each of its volumes the driver that attaches it, and the driver's handle.

A claim is resolved through its PersistentVolume, one that is not bound yet through its storage class's provisioner, and
an in-tree volume through the CSI driver that its plugin has been migrated to (semantics 8.11).
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
from kubestow.cluster.storage.pod_volumes import PodClaim, claim_of
from kubestow.errors import InvalidObject
from kubestow.rules.claims import ownership_problem

__all__ = ["CSIVolume", "Dependency", "PodVolumeResolver", "ResolvedVolume"]

#: An object that a result depends on: ("claim", namespace, name), ("volume", name) or ("class", name).
Dependency = tuple[str, ...]


class CSIVolume(NamedTuple):
    """A volume by its CSI driver and the driver's handle."""

    driver: str
    handle: str


@dataclass(frozen=True, slots=True)
class ResolvedVolume:
    """A volume of a pod, or the ``problem`` with it; ``missing`` means that the problem is a claim that does not exist.

    One that is ``in_tree`` counts only on nodes where its plugin has been migrated. QUIRK (semantics 8.11): migration
    can no longer be disabled, so that is every node with a CSINode, whatever the CSINode lists.
    """

    volume: CSIVolume | None = None
    in_tree: bool = False
    problem: str = ""
    missing: bool = False


class PodVolumeResolver:
    """Resolves the volumes of pods."""

    def __init__(
        self,
        claims: Catalog[PersistentVolumeClaim],
        volumes: Catalog[PersistentVolume],
        classes: Catalog[StorageClass],
    ) -> None:
        self._claims, self._volumes, self._classes = claims, volumes, classes

    def resolve(
        self, pod: PodInfo, record_dependency: Callable[[Dependency], None] = lambda _: None
    ) -> Iterator[ResolvedVolume]:
        """The volumes of a pod, in order, without those that are never attached."""
        for volume in pod.spec.volumes:
            claim = claim_of(pod, volume)
            resolved = _resolve_inline(volume) if claim is None else self._resolve_claim(pod, claim, record_dependency)
            if resolved is not None:
                yield resolved

    def _resolve_claim(
        self, pod: PodInfo, pod_claim: PodClaim, record_dependency: Callable[[Dependency], None]
    ) -> ResolvedVolume | None:
        if not pod_claim.name:
            return ResolvedVolume(problem="PersistentVolumeClaim had no name")
        record_dependency(("claim", pod.namespace, pod_claim.name))
        claim = self._claims.get(pod.namespace, pod_claim.name)
        if claim is None:
            not_found = f'persistentvolumeclaim "{pod_claim.name}" not found'
            return ResolvedVolume(problem=f"looking up PVC {pod.namespace}/{pod_claim.name}: {not_found}", missing=True)
        if pod_claim.ephemeral and (problem := ownership_problem(claim, pod=pod.key, pod_uid=pod.uid)):
            return ResolvedVolume(problem=problem)
        if claim.spec.volume_name:
            record_dependency(("volume", claim.spec.volume_name))
            volume = self._volumes.get("", claim.spec.volume_name)
            if volume is not None:
                return _resolve_persistent(volume)
        record_dependency(("class", claim.storage_class))
        return self._resolve_unbound(claim)

    def _resolve_unbound(self, claim: PersistentVolumeClaim) -> ResolvedVolume | None:
        """A claim without a volume counts as one volume of the driver that would provision it."""
        storage_class = self._classes.get("", claim.storage_class)
        if storage_class is None or not storage_class.provisioner:
            return None
        handle = f"claim {claim.key}"
        plugin = plugin_named(storage_class.provisioner)
        if plugin is None:
            return ResolvedVolume(CSIVolume(storage_class.provisioner, handle))
        return ResolvedVolume(CSIVolume(plugin.driver, handle), in_tree=True) if plugin.migrates else None


def _resolve_inline(volume: Volume) -> ResolvedVolume | None:
    plugin = in_tree_plugin(volume)
    if plugin is None or not plugin.migrates:
        return None
    try:
        return ResolvedVolume(CSIVolume(plugin.driver, volume_handle(plugin, volume)), in_tree=True)
    except InvalidObject as error:
        return ResolvedVolume(problem=f"converting volume({volume.name}) from inline to csi: {error}", in_tree=True)


def _resolve_persistent(volume: PersistentVolume) -> ResolvedVolume | None:
    csi = volume.spec.csi
    if csi is not None:
        return ResolvedVolume(CSIVolume(csi.driver, csi.volume_handle)) if csi.driver and csi.volume_handle else None
    plugin = in_tree_plugin(volume.spec)
    if plugin is None or not plugin.migrates:
        return None
    try:
        handle = volume_handle(plugin, volume.spec, volume.metadata.labels)
    except InvalidObject:
        return None  # a volume that cannot be translated does not count
    return ResolvedVolume(CSIVolume(plugin.driver, handle), in_tree=True) if handle else None
