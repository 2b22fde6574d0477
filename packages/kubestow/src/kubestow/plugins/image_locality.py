"""ImageLocality prefers nodes that already have the pod's images (semantics 8.10).

The size of an image counts in proportion to the share of nodes that have it, so that a node with a rare image does not
attract all pods that use it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.columns import normalized as normalized_image_name
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import MAX_SCORE, Handle, ScorePlugin
from kubestow.rules.minors import Behaviour

_MIB = 2**20
#: A sum of image sizes up to the minimum scores 0, in bytes.
_MIN_THRESHOLD = 23 * _MIB
#: A sum of image sizes from this many bytes per container (and image volume) on scores 100.
_MAX_CONTAINER_THRESHOLD = 1000 * _MIB


class ImageLocality(ScorePlugin):
    """Sums up the sizes of the pod's images that each node has, each scaled by the share of nodes that have it."""

    name = "ImageLocality"
    reads_requests = False
    label_keys = ()
    #: Every score depends on the number of nodes and on how many of them have an image.
    events_to_register = (
        on(
            EventResource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_IMAGES,
            invalidates=Invalidation.ALL,
            requeues=False,
        ),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._counts_volumes = handle.emulates(Behaviour.IMAGE_VOLUMES_ARE_IMAGES)
        self._volumes_raise_threshold = handle.emulates(Behaviour.IMAGE_VOLUMES_RAISE_THE_THRESHOLD)

    def signature(self, pod: PodInfo) -> Hashable:
        """The images, and how many of them scale the score."""
        return self._image_count(pod), tuple(sorted(self._image_names(pod)))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """0 below 23 MiB of images, 100 above 1000 MiB per image, linear in between."""
        total = np.zeros(len(nodes), np.int64)
        for name in self._image_names(pod):
            image = nodes.image(name)
            if image is not None:
                size, node_count, present = image
                spread = float(node_count) / float(nodes.total)
                total += present * np.int64(int(float(size) * spread))
        high = _MAX_CONTAINER_THRESHOLD * self._image_count(pod)
        clamped = np.clip(total, _MIN_THRESHOLD, max(_MIN_THRESHOLD, high))
        return MAX_SCORE * (clamped - _MIN_THRESHOLD) // max(1, high - _MIN_THRESHOLD)

    def _image_names(self, pod: PodInfo) -> list[str]:
        names = [container.image for container in (*pod.spec.init_containers, *pod.spec.containers)]
        if self._counts_volumes:
            names += [volume.image.reference for volume in pod.spec.volumes if volume.image is not None]
        return [normalized_image_name(name) for name in names]

    def _image_count(self, pod: PodInfo) -> int:
        """Init containers and containers, and image volumes if they raise the threshold."""
        volumes = sum(volume.image is not None for volume in pod.spec.volumes) if self._volumes_raise_threshold else 0
        return len(pod.spec.init_containers) + len(pod.spec.containers) + volumes
