"""Public tools for tests, of plugins and of kubestow itself.

:func:`pod` and :func:`node` build API objects in a line; a :class:`World` is a cluster to ask about them.
"""

from kubestow.testing.builders import node, nodes, pod, pods
from kubestow.testing.world import World

__all__ = ["World", "node", "nodes", "pod", "pods"]
