"""The controllers of kube-controller-manager that a development cluster needs, in one process.

:class:`ControllerManager` runs all of them as one task. Each controller is a module, or in a package:

    workloads/         deployments, replica sets, stateful sets, daemon sets, jobs, cron jobs; adoption, revisions
    autoscaling/       horizontal pod autoscalers
    storage/           persistent volumes and claims: binding, provisioning, protection, ephemeral volumes
    nodes/             node lifecycle, taint eviction, pod garbage collector
    disruption         pod disruption budgets
    resource_claims    resource claims of pods
    resource_quotas    the usage of resource quotas
    service_accounts   the default service account and the root CA of each namespace
    garbage_collector, namespaces, event_ttl

They share ``controller`` (the base classes), ``work_queue``, ``pods`` (an index of all pods), ``pod_usage``,
``owner_references`` and ``conditions``.
"""

from kubestow_devcluster.controllers.manager import ControllerManager

__all__ = ["ControllerManager"]
