"""The rules of Kubernetes about its own objects, each once, as pure functions on plain objects.

The development cluster, simulations, the scheduler and the test cluster call them. The chapters:

    patches                     JSON patch, JSON merge patch, strategic merge patch
    owners                      owner references, generated names, hashes of templates
    workloads                   what controllers create from templates: pods, ReplicaSets, Jobs, claims
    claims                      the claims that are created for pods
    volumes                     which volume a claim gets, and what binding writes
    disruption                  evictions within PodDisruptionBudgets
    pods, pod_defaults          qualities and defaults of pods
    requests, resource_lists    requests and allocatable resources
    matching, node_with_pods    node selectors, taints and tolerations
"""
