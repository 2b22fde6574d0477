"""Gating: PreEnqueue plugins keep pods out of activeQ (semantics 6.4)."""

from __future__ import annotations

from typing import Protocol

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.status import Status

__all__ = ["GatingListener"]


class GatingListener(Protocol):
    """Hears of every pod that PreEnqueue rejects, such as to report it on the pod."""

    def pod_gated(self, pod: PodInfo, status: Status) -> None:
        """A PreEnqueue plugin (``status.plugin``) gated the pod, or failed with an ERROR status.

        The pod's queue entry still shows where the pod was before.
        """
