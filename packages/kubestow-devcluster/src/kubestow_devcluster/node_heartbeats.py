"""The timing of node heartbeats: what kubelets renew and what the node lifecycle controller expects.

Each node has a Lease in :data:`LEASE_NAMESPACE`. The defaults are those of kubelet and kube-controller-manager.
"""

from __future__ import annotations

__all__ = ["LEASE_DURATION", "LEASE_NAMESPACE", "NODE_MONITOR_GRACE_PERIOD", "RENEW_INTERVAL"]

LEASE_NAMESPACE = "kube-node-lease"
#: Seconds between two renewals of a node's lease.
RENEW_INTERVAL = 10.0
#: ``spec.leaseDurationSeconds`` of a node's lease.
LEASE_DURATION = 40
#: Seconds without a heartbeat after which a node's conditions become Unknown (``--node-monitor-grace-period``).
NODE_MONITOR_GRACE_PERIOD = 50.0
