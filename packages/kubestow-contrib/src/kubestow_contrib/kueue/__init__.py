"""Kueue: which jobs are admitted by quota, with which flavors of nodes, and which they preempt.

Job queues of Kueue (https://github.com/kubernetes-sigs/kueue) as its scheduler decides about them, simulated: pure
functions of objects and time, without a cluster. Facts are those of its main branch at commit ff69552 (August 2026,
between v0.19 and v0.20) with the default feature gates.

    objects            ClusterQueues, Cohorts, ResourceFlavors, LocalQueues and Workloads, as they are decoded
    quota_tree         quotas and usage of ClusterQueues and cohorts: what is available, borrowed and lent
    topology           the domains of nodes in which pods fit together, for topology-aware scheduling
    workload_info      a Workload as admission sees it: requests, priority, order, state
    admission_state    ClusterQueues with their policies, flavors, and the Workloads with quota
    flavor_assignment  the flavor for each resource of a Workload's pods, and whether it fits now
    preemption         the Workloads to preempt without fair sharing
    fair_sharing       dominant resource shares, the order of fair sharing and its preemption
    pending_workloads  the queues of Workloads that wait
    local_queue_usage  the decayed usage of LocalQueues, for admission fair sharing
    admission_cycle    one cycle: the heads of all queues, nominated, ordered, and admitted or not
    admission          state and queues together, cycle after cycle
    jobs               Jobs as Workloads, and the pods of admitted Workloads
    explanation        why a Workload waits, and what has to end for it
    admission_system   all of it for simulations and `kubestow why`
"""
