"""The descheduler as a program: loops on a live cluster, evictions through its API, events, metrics and a Lease.

:mod:`.descheduler_app` puts it together. What to evict is decided in :mod:`kubestow.descheduling`.
"""
