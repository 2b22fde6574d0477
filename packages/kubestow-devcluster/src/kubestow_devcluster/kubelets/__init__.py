"""Simulated kubelets: they report node status, renew leases and run the pods bound to their nodes.

Every Node object has one. :class:`Kubelets` runs all of them as one task; it watches nodes and pods in the store and
writes through the registry, in process:

    kubelets        the watch loop over nodes and pods
    node_status     the status of each node, and whether its kubelet runs, shuts down or is stopped
    node_leases     the lease of each node, renewed in batches
    pod_workers     one worker per pod: the next step in its lifecycle and when it is due
    pod_admission   whether a node admits a pod that was bound to it
    pod_lifecycle   these steps, as pure functions of the pod
    pod_stages      changes of pods by the Stages of KWOK, beside their lifecycle
    pod_conditions  the conditions in a pod's status
    behaviour       how a pod runs, read from its annotations, rules and commands
    addresses       allocation of node and pod IPs
    timers          callbacks by deadline
"""

from kubestow_devcluster.kubelets.kubelets import Kubelets

__all__ = ["Kubelets"]
