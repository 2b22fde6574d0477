"""Simulated kubelets: they report node status, renew leases and run the pods bound to their nodes.

Every Node object has one. :class:`Kubelets` runs all of them as one task; it watches nodes and pods in the store and
writes through the registry, in process:

    kubelets          the watch loop over nodes and pods, and one worker per pod: its next step and when that is due
    node_status       status, lease and addresses of each node, and whether its kubelet runs, shuts down or is stopped
    pod_admission     whether a node admits a pod that was bound to it
    pod_lifecycle     the steps of a pod, as pure functions of it, and the conditions in its status
    resource_metrics  NodeMetrics and PodMetrics from the usage of running containers
"""
