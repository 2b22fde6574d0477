"""ImageLocality prefers nodes that already hold the pod's images (semantics 8.10)."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.images import normalized as normalized_name
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, ScorePlugin

__all__ = ["ImageLocality"]

_MIB = 2**20
#: Images smaller than this do not matter; more than the second, per container, matters no more.
_LOW, _HIGH = 23 * _MIB, 1000 * _MIB


class ImageLocality(ScorePlugin):
    """Sums the sizes of images that are on the node, scaled by how widely each is spread."""

    name = "ImageLocality"
    #: A score depends on how many nodes hold an image and how many there are, so any such change spoils all.
    events_to_register = (
        on(
            EventResource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_IMAGES,
            invalidates=Invalidation.ALL,
            requeues=False,
        ),
    )

    def signature(self, pod: PodInfo) -> Hashable:
        """The images, and the number of containers that scales the score."""
        return self._containers(pod), tuple(sorted(self._images(pod)))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """0 below 23 MiB of images, 100 above 1000 MiB per container, linear between."""
        total = np.zeros(len(nodes), np.int64)
        for name in self._images(pod):
            image = nodes.image(name)
            if image is not None:
                size, holders, where = image
                spread = float(holders) / float(nodes.total)
                total += where * np.int64(int(float(size) * spread))
        most = _HIGH * self._containers(pod)
        return MAX_SCORE * (np.clip(total, _LOW, max(_LOW, most)) - _LOW) // max(1, most - _LOW)

    @staticmethod
    def _containers(pod: PodInfo) -> int:
        return len(pod.spec.init_containers) + len(pod.spec.containers)

    @staticmethod
    def _images(pod: PodInfo) -> list[str]:
        containers = [container.image for container in (*pod.spec.init_containers, *pod.spec.containers)]
        volumes = [volume.image.reference for volume in pod.spec.volumes if volume.image is not None]
        return [normalized_name(name) for name in (*containers, *volumes)]
