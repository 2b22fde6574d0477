"""Where the autoscaler reads the usage of pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from kubestow_devcluster.apiserver.storage.store import StoredObject

__all__ = ["PodUsage", "UsedResources"]


class UsedResources(Protocol):
    """What a container uses: CPU in cores, memory in bytes."""

    @property
    def cpu(self) -> float: ...

    @property
    def memory(self) -> float: ...


class PodUsage(Protocol):
    """The usage of pods at the last measurement, of which there is one every ``resolution`` seconds."""

    resolution: float

    def measured_at(self) -> datetime:
        """When usage was measured last."""

    def of_pod(self, pod: StoredObject) -> Mapping[str, UsedResources]:
        """The usage of the running containers of a pod, by name; empty for a pod without metrics."""
