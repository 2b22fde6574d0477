"""Training jobs that share accelerators over time: the policies of Tiresias and Gavel, and their simulation in rounds.

    jobs            what a job is: GPUs, steps, and how fast it makes them on each type of accelerator
    rounds          the simulation: a policy assigns types of accelerators to jobs, round after round
    job_orders      policies that order jobs: first come, shortest remaining, least attained service, Gittins index
    time_shares     Gavel's mechanism: jobs get accelerators in proportion to shares of time that a policy computes
    share_policies  the shares: max-min fairness, finish-time fairness, makespan and FIFO, by linear programs

A job keeps its progress when it is preempted, which takes no time. Jobs get accelerators of a type and not nodes: where
the pods of a job go is up to the scheduler, and is simulated by :mod:`kubestow_lab.simulation`.
"""
