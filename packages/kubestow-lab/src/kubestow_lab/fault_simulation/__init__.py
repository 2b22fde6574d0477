"""Fault simulation: living schedulers under injected faults, reproducible by seed, every decision checked.

    event_loop   virtual time, and a seeded shuffle of ready callbacks
    trace        what happens in a run: its trace, and the numbered steps that it takes on purpose
    recording    the flight records of processes
    faults       the kinds of faults, and how often they occur
    apiserver/   the API server, its outages and Lease, its watches as objects and over HTTP, the client of a process
    scheduler/   a scheduler process that is started, stopped and killed, with a faulty plugin, extender and clock
    actors/      users, kubelets, jobs, storage and devices
    invariants/  what takes more than a few lines to find out about decisions, bindings and schedulers
    specification  what must hold of any scheduler: all rules, each with its reason
    witness      states what the schedulers of a run do as facts, which the specification judges
    marks        the rare paths that runs have to reach
    scenario     what a run consists of, drawn from a seed or varied
    simulation   seeded runs from beginning to end, in a pool of processes if there are many
    search       runs that differ from those before, until one breaks a rule
    shrinking    the few steps of a failing run that matter
    story        a failing run as text that one can read, and as a test
    exploration  a model of the binding protocol, of which every state is visited

``python -m kubestow_lab.fault_simulation --seeds 100 --first 1`` runs many. A seed reproduces a run exactly.
"""
