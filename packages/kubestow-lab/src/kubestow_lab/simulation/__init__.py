"""The scheduler offline: simulation in virtual time.

Nothing here does network I/O or reads the wall clock. A simulation runs the scheduler itself on an API server in
memory::

    cluster = Cluster.load("dump.json")
    result = Simulation(cluster, Arrivals.load("deploy.yaml", cluster=cluster)).run()

:mod:`.arrivals` reads the pods of a workload, which :mod:`.expansion` creates as controllers would.
:mod:`.simulated_cluster` answers the scheduler, and :mod:`.simulation_result` is what comes of it.
"""
