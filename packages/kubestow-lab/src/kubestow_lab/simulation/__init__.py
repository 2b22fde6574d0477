"""Simulations: the scheduler itself, run in virtual time on an API server in memory.

Nothing here does network I/O or reads the wall clock::

    cluster = Cluster.load("dump.json")
    result = Simulation(cluster, Arrivals.load("deploy.yaml", cluster=cluster)).run()

:mod:`.arrivals` reads the pods of a workload, which :mod:`.expansion` creates as controllers would.
:mod:`.simulated_cluster` answers the scheduler, and :mod:`.simulation_result` is what comes of it.
:mod:`.forked_simulation` copies a simulation in progress.
"""
