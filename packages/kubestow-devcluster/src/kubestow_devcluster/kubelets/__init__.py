"""Simulated kubelets: they report node status, renew leases and run the pods bound to their nodes.

Every Node object has one. :class:`Kubelets` runs all of them as one task; it watches nodes and pods in the store and
writes through the registry, in process:

    kubelets          the watch loop over nodes and pods
    node_status       the status and the lease of each node, and whether its kubelet runs, shuts down or is stopped
    pod_workers       one worker per pod: the next step in its lifecycle and when it is due; the Stages of KWOK
    pod_admission     whether a node admits a pod that was bound to it
    pod_lifecycle     these steps, as pure functions of the pod, and the conditions in its status
    addresses         allocation of node and pod IPs
    resource_metrics  NodeMetrics and PodMetrics from the usage of running containers
"""
