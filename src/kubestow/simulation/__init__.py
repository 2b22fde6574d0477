"""The scheduler offline: simulation in virtual time, capacity reports and replay of recorded decisions.

Nothing here does network I/O or reads the wall clock. A simulation runs the scheduler itself on an API server in
memory::

    cluster = Cluster.load("dump.json")
    result = Simulation(cluster, Arrivals.load("deploy.yaml", cluster=cluster)).run()

:mod:`.recorded_cases` reads recorded cases, :mod:`.replay` schedules their pods and compares every result. Controllers
that act between two decisions (:mod:`.resource_claims`, :mod:`.volume_controller`) complete immediately.
"""
