"""Descheduling: which pods should leave their nodes, by the descheduler's policies and strategies.

A :class:`~.loop.Descheduler` runs the strategies of a policy on a snapshot of the cluster, and evicts pods through a
backend::

    policy ─► profiles ─► Deschedule plugins ─► Balance plugins ─► evictor ─► limits ─► backend
    YAML      plugins        candidates           candidates       filters              API server or dry run

The decisions read no clock and do no I/O. :mod:`.interface` is what a plugin is written against.
"""
