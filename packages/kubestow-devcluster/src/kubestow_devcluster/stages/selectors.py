"""Which pods and nodes a rule applies to. All fields of a selector must match; an empty selector matches everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

__all__ = ["NodeSelector", "PodSelector"]


class PodSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Selects pods by namespace, name, labels, annotations and images. Names and images are patterns (``*``, ``?``)."""

    namespaces: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}
    match_annotations: dict[str, str] = {}
    #: Patterns of images: the pod has a container with one of them.
    images: tuple[str, ...] = ()

    def matches(self, pod: dict[str, Any]) -> bool:
        metadata = pod["metadata"]
        return (
            (not self.namespaces or metadata.get("namespace", "") in self.namespaces)
            and _matches_any(self.names, metadata.get("name", ""))
            and _contains(metadata.get("labels"), self.match_labels)
            and _contains(metadata.get("annotations"), self.match_annotations)
            and (not self.images or any(True for _ in self.containers_of(pod)))
        )

    def containers_of(self, pod: dict[str, Any]) -> Iterator[str]:
        """The names of the containers, init containers included, whose image matches."""
        for field in ("initContainers", "containers"):
            for container in pod["spec"].get(field) or ():
                if _matches_any(self.images, container.get("image", "")):
                    yield container["name"]


class NodeSelector(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Selects nodes by name (patterns) and labels."""

    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        return _matches_any(self.names, name) and _contains(labels, self.match_labels)


def _matches_any(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


def _contains(found: Mapping[str, str] | None, expected: Mapping[str, str]) -> bool:
    return not expected or (found is not None and expected.items() <= found.items())
