"""The controllers of kube-controller-manager that a development cluster needs, in one process.

:class:`~kubestow_devcluster.controller_manager.ControllerManager` runs all of them as one task. Each controller is a
module, or in a package:

    workloads/                  deployments, replica sets, stateful sets, daemon sets, jobs, cron jobs
    volumes                     persistent volumes and claims: binding, provisioning, protection, ephemeral volumes
    node_lifecycle              node lifecycle, taint eviction, pod garbage collector
    horizontal_pod_autoscalers  horizontal pod autoscalers, with replica_calculator
    disruption                  pod disruption budgets
    resource_claims             resource claims of pods
    endpoints                   Endpoints and EndpointSlices of services
    namespaces                  namespaces, and the usage of resource quotas
    service_accounts            the default service account and the root CA of each namespace; aggregated roles
    garbage_collector           dependents without owners, and events after their time to live

They share ``controller`` (the base classes and the work queue) and ``pod_index`` (an index of all pods).
"""
