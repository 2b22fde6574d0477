"""The pods that a strategy is about: those of some namespaces that a label selector matches."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import EVERYTHING, compile_selector
from kubestow.descheduling.cluster_state import AssignedPod
from kubestow.descheduling.interface import Problem
from kubestow.errors import InvalidSelector

__all__ = ["Namespaces", "PodSelection", "selection_problems", "selector_problems"]


class Namespaces(msgspec.Struct, frozen=True, rename="camel"):
    """``namespaces`` in the arguments of a strategy; only one of the lists may be given."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def selection_problems(namespaces: Namespaces | None, label_selector: LabelSelector | None = None) -> Iterator[Problem]:
    """The mistakes in ``namespaces`` and ``labelSelector``."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        yield Problem("namespaces", "only one of Include/Exclude namespaces can be set")
    yield from selector_problems("labelSelector", label_selector)


def selector_problems(path: str, selector: LabelSelector | None) -> Iterator[Problem]:
    """The mistake in a label selector at a path, if it has one."""
    if selector is not None:
        try:
            compile_selector(selector)
        except InvalidSelector as error:
            yield Problem(path, f"failed to get label selectors from strategy's params: {error}")


class PodSelection:
    """The pods of some namespaces that a label selector matches; all pods by default."""

    def __init__(self, namespaces: Namespaces | None = None, label_selector: LabelSelector | None = None) -> None:
        self._include = frozenset(namespaces.include if namespaces else ())
        self._exclude = frozenset(namespaces.exclude if namespaces else ())
        self._selector = EVERYTHING if label_selector is None else compile_selector(label_selector)
        self._all = not self._include and not self._exclude and self._selector.is_empty

    def matches(self, pod: AssignedPod) -> bool:
        """Whether a pod is selected."""
        if self._all:
            return True
        namespace = pod.namespace
        if self._include and namespace not in self._include:
            return False
        return namespace not in self._exclude and self._selector.matches(pod.labels)
