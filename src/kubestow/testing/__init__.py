"""Public tools for tests, of plugins and of kubestow itself.

:func:`pod` and :func:`node` build API objects in a line. A :class:`World` is a cluster to ask for decisions, without
time. A :class:`MemoryCluster` is one to run the living scheduler on, in virtual time (:mod:`.virtual_time`).
"""

from kubestow.testing.builders import node, nodes, pod, pods
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.world import World

__all__ = ["MemoryCluster", "World", "node", "nodes", "pod", "pods"]
