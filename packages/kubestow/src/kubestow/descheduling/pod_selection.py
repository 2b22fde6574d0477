"""Which pods are meant: by the namespaces and labels of a strategy, and by required anti-affinity terms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import PodAffinityTerm
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import EVERYTHING, Selector, compile_selector
from kubestow.cluster.pods.shapes import Shape
from kubestow.descheduling.cluster_state import AssignedPod
from kubestow.descheduling.interface import ArgumentProblem, DeschedulingPlugin
from kubestow.errors import InvalidSelector


class Namespaces(msgspec.Struct, frozen=True, rename="camel"):
    """``namespaces`` in the arguments of a strategy; only one of the lists may be given."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def selection_problems(
    namespaces: Namespaces | None, label_selector: LabelSelector | None = None
) -> Iterator[ArgumentProblem]:
    """The mistakes in ``namespaces`` and ``labelSelector``."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        yield ArgumentProblem("namespaces", "only one of Include/Exclude namespaces can be set")
    yield from selector_problems("labelSelector", label_selector)


def selector_problems(path: str, selector: LabelSelector | None) -> Iterator[ArgumentProblem]:
    """The mistake in a label selector at a path, if it has one."""
    if selector is not None:
        try:
            compile_selector(selector)
        except InvalidSelector as error:
            yield ArgumentProblem(path, f"failed to get label selectors from strategy's params: {error}")


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


class SelectionArgs(msgspec.Struct, frozen=True, rename="camel"):
    """The arguments of strategies for some pods."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None


class SelectingPlugin(DeschedulingPlugin):
    """The base of strategies whose arguments select pods."""

    Args: ClassVar[type[msgspec.Struct]] = SelectionArgs

    @classmethod
    def validate(cls, args: Any) -> Iterable[ArgumentProblem]:
        return selection_problems(args.namespaces, args.label_selector)

    def __init__(self, args: Any) -> None:
        super().__init__(args)
        self._selection = PodSelection(args.namespaces, args.label_selector)


class AntiAffinityTerm:
    """A required anti-affinity term of a pod: the namespaces and the selector of the pods to keep away from.

    QUIRK: only the list of namespaces counts, not ``namespaceSelector``; without a list it is the pod's own namespace.
    """

    __slots__ = ("namespaces", "selector", "topology_key")

    def __init__(self, namespace: str, term: PodAffinityTerm) -> None:
        """Raises InvalidSelector."""
        self.namespaces = frozenset(term.namespaces or (namespace,))
        self.selector = compile_selector(term.label_selector)
        self.topology_key = term.topology_key

    def matches(self, shape: Shape) -> bool:
        """Whether pods of a shape are among those to keep away from."""
        return shape.namespace in self.namespaces and self.selector.matches(shape.labels)

    @property
    def pods_key(self) -> tuple[frozenset[str], Selector]:
        """What the matching pods depend on."""
        return self.namespaces, self.selector


def required_anti_affinity(shape: Shape) -> list[AntiAffinityTerm]:
    """The required anti-affinity terms of pods of a shape. Raises InvalidSelector."""
    affinity = shape.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return []
    terms = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    return [AntiAffinityTerm(shape.namespace, term) for term in terms]


class MatchingPods:
    """Some pods, counted per node (``counts``, int64) and found by name."""

    def __init__(self, pods: Iterable[AssignedPod], nodes: int) -> None:
        self._by_name: dict[str, list[AssignedPod]] = {}
        self.counts: NDArray[np.int64] = np.zeros(nodes, np.int64)
        for pod in pods:
            self._by_name.setdefault(pod.name, []).append(pod)
            self.counts[pod.row] += 1

    def named(self, name: str) -> list[AssignedPod]:
        """Those of a name, in any namespace."""
        return self._by_name.get(name, [])

    def counts_without(self, name: str) -> NDArray[np.int64]:
        """How many there are on each node, those of a name not counted, int64."""
        named = self.named(name)
        if not named:
            return self.counts
        counts = self.counts.copy()
        for pod in named:
            counts[pod.row] -= 1
        return counts

    def discard(self, pod: AssignedPod) -> None:
        """Remove a pod, if it is one of them."""
        named = self.named(pod.name)
        if pod in named:
            named.remove(pod)
            self.counts[pod.row] -= 1
