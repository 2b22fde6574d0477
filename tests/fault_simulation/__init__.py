"""A deterministic simulation of living schedulers in a hostile world.

    loop         virtual time, and a seeded shuffle of whatever is ready to run
    trace        what happened, line by line, and its fingerprint
    faults       what may go wrong, and how often
    server       the API server: objects, versions, histories, refusals
    lease        the Lease by which schedulers elect a leader
    watching     list and watch as objects, with everything that can happen to a watch
    wire         list and watch as bytes, with everything that can happen on the way
    clocks       what each machine takes the time to be
    connection   one scheduler process' way to the server; requests and answers get lost on it
    opinion      whether a decision was right, asked of somebody else
    sight        what a scheduler has been told of the cluster
    meddling     a plugin that raises, refuses, dawdles, and keeps books
    process      a scheduler that is started, stopped and killed
    rounds       how often those look who look after something
    inhabitants  kubelets and people
    storage      volumes, their administrator, and what pods may ask of them
    devices      devices, their drivers, and what pods may ask of them
    claims       writes to claims on devices
    invariants   what must hold while it lives, and when everything has come to rest
    simulation   one seeded run from beginning to end

``python -m tests.fault_simulation --seeds 100 --first 1`` runs many. A seed reproduces a run exactly.
"""
