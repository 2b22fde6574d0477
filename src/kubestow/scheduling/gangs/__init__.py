"""Gangs: pods that get their nodes all together or not at all (semantics 4.10).

:mod:`.cycle` is where to begin: the scheduling cycle of a gang. It tries the pods (:mod:`.trials`, :mod:`.trial`), in
one part of the cluster after the other where they have to stay together (:mod:`.placements`), and finds out whom to
evict (:mod:`.preemption`, :mod:`.group_preemption`). Before they are bound they meet: :mod:`..rendezvous`.
"""
