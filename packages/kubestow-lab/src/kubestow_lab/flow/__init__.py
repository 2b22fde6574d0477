"""Global placement: pods in equivalence classes, placed by min-cost flow or packed exactly by CP-SAT.

Each module builds on those before it:

    solvers            the solvers of OR-Tools, an optional dependency (``kubestow-lab[flow]``)
    problem            a placement problem as arrays: classes of pods, nodes, what fits where, and what it costs
    cost_models        what a placement costs: cpu-mem, octopus, quincy
    equivalence        the problem of a cluster and some pods; feasibility comes from the engine's own filters
    network            one min-cost flow over a problem
    packing            the optimum of a problem with all resources, or a bound for it
    engine_placement   placements on the nodes of a solution, each accepted or refused by the engine
    rounds             rounds of flow on a cluster, with preemption and migration
"""
