"""Index keys: what pods are looked up by, so that a selector need not be matched against every pod.

A pod has a key for its namespace, one for each of its labels, one for each label within its namespace, and one for each
affinity term that it carries. A selector yields keys of which every pod that it selects has exactly one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from kubestow.api.selectors import Selector

__all__ = ["IndexKeys", "index_keys_of", "selected_index_keys"]

IndexKeys = frozenset[Hashable]


def index_keys_of(namespace: str, labels: Mapping[str, str], carried: Iterable[Hashable]) -> IndexKeys:
    """The keys of a pod; ``carried`` are its affinity terms."""
    pairs = labels.items()
    return frozenset((namespace, *pairs, *((namespace, *pair) for pair in pairs), *carried))


def selected_index_keys(namespaces: frozenset[str] | None, selector: Selector) -> IndexKeys | None:
    """Keys of which every selected pod in the namespaces (None: in all of them) has exactly one.

    None when the selector restricts neither namespaces nor labels by equality, so that any pod may be selected.
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
