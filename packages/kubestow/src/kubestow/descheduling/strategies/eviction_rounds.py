"""Evicting the pods of one node after another, as most strategies do: until a limit ends the node or the plugin."""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.descheduling.cluster_state import AssignedPod
from kubestow.descheduling.interface import Evictor

__all__ = ["evict_of_node"]


def evict_of_node(pods: Iterable[tuple[AssignedPod, str]], evictor: Evictor) -> bool:
    """Evict pods of one node, each with the reason why, as far as the limits allow.

    False if no pod at all can be evicted any more.
    """
    for pod, why in pods:
        outcome = evictor.evict(pod, why)
        if outcome.ends_plugin:
            return False
        if outcome.ends_node:
            break
    return True
