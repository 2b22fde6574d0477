"""Groups: what pods are looked up by when only some of all pods can matter.

A pod is in the group of its namespace, of each of its labels, of each label within its namespace, and of each affinity
term it carries. Whoever looks for the pods that a selector means looks only among groups in which all of them must be.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from kubestow.api.selectors import Selector

__all__ = ["IndexKeys", "index_keys_of", "selected_index_keys"]

IndexKeys = frozenset[Hashable]


def index_keys_of(namespace: str, labels: Mapping[str, str], carried: Iterable[Hashable]) -> IndexKeys:
    """The groups that a pod is in."""
    pairs = labels.items()
    return frozenset((namespace, *pairs, *((namespace, *pair) for pair in pairs), *carried))


def selected_index_keys(namespaces: frozenset[str] | None, selector: Selector) -> IndexKeys | None:
    """Groups of which a pod is in exactly one if it is in one of the namespaces (None: in any) and selected.

    None when nothing narrows down where to look.
    """
    if selector.nothing:
        return frozenset()
    needed = [requirement for requirement in selector.requirements if requirement.operator == "In"]
    if not needed:
        return namespaces
    key, values = min(((r.key, r.values) for r in needed), key=lambda pair: len(pair[1]))
    if namespaces is None:
        return frozenset((key, value) for value in values)
    return frozenset((namespace, key, value) for namespace in namespaces for value in values)
