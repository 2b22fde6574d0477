"""Contributed plugins, which kube-scheduler does not have; none is enabled by default.

Those of scheduler-plugins, crane-scheduler and koordinator have the same names and args as the originals, and the
registry (:mod:`kubestow.plugins.registry`) knows them: a configuration enables them like in-tree plugins. None is
imported unless it is enabled. The pod groups of Volcano and of the co-scheduling plugin count wherever this distribution is
installed. docs/contrib.md describes each, docs/fragmentation.md those for GPU sharing.
"""
