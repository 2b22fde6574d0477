"""Container images on nodes, by name: their sizes and the nodes that have them.

QUIRK (semantics 7.3): the size of an image is the one reported by the first node that has it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kubestow.api.core import ContainerImage
from kubestow.cluster.nodes.columns import Column, Columns

__all__ = ["Image", "Images", "normalized"]


def normalized(name: str) -> str:
    """An image name with its tag: ``nginx`` is ``nginx:latest`` (semantics 8.10)."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


@dataclass(slots=True)
class Image:
    """An image: its ``size`` in bytes, the number of ``nodes`` that have it, and which (``on``: bool, one per row)."""

    size: int
    on: Column
    nodes: int = 0


class Images:
    """All images by name."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._images: dict[str, Image] = {}

    def get(self, name: str) -> Image | None:
        """The image of exactly this name, None when no node has it."""
        return self._images.get(name)

    def add(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Add the images of a row."""
        for image in images:
            for name in image.names:
                known = self._images.get(name)
                if known is None:
                    known = self._images[name] = Image(image.size_bytes, self._columns.new(np.bool_))
                if not known.on.values[row]:
                    known.on.values[row] = True
                    known.nodes += 1

    def remove(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Remove the images of a row."""
        for image in images:
            for name in image.names:
                known = self._images.get(name)
                if known is not None and known.on.values[row]:
                    known.on.values[row] = False
                    known.nodes -= 1
                    if not known.nodes:
                        del self._images[name]
