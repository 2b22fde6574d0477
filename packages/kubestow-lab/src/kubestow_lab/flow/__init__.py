"""Global placement: pods in equivalence classes, placed by min-cost flow or packed exactly by CP-SAT.

Each module builds on those before it:

    problem       a placement problem as arrays: classes of pods, nodes, what fits where, and what it costs
    cost_models   what a placement costs: cpu-mem, octopus, quincy, network-aware
    equivalence   the problem of a cluster and some pods; feasibility comes from the engine's own filters
    network       one min-cost flow over a problem
    packing       the optimum of a problem with all resources, or a bound for it
    rounds        rounds of flow on a cluster, with preemption and migration

The solvers and the engine's verdict on solutions are in :mod:`kubestow.engine.placement`.
"""
