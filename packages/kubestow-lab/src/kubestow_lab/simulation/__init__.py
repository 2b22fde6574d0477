"""The scheduler offline: simulation in virtual time, capacity reports and replay of recorded decisions.

Nothing here does network I/O or reads the wall clock. A simulation runs the scheduler itself on an API server in
memory::

    cluster = Cluster.load("dump.json")
    result = Simulation(cluster, Arrivals.load("deploy.yaml", cluster=cluster)).run()

:mod:`.cluster_api` answers the scheduler of a simulation, and :mod:`.results` is what comes of it. What needs no queue
and no time, such as capacity reports and explanations, decides with :mod:`.pipeline`.
"""
