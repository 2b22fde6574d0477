"""The rules of Kubernetes about its own objects, each once, as pure functions on plain objects.

The development cluster, simulations, the scheduler and the test cluster call them. The chapters:

    patches                     JSON patch, JSON merge patch, strategic merge patch
    owners                      owner references, generated names, hashes of templates
    workloads                   what controllers create from templates: pods, ReplicaSets, Jobs, claims
    claims                      the claims that are created for pods
    volumes                     which volume a claim gets, and what binding writes
    disruption                  evictions within PodDisruptionBudgets
    defaults, admission         what the API server and its admission plugins fill in
    pods                        terminal phases, QoS class and host ports of a pod
    requests, resource_lists    requests and allocatable resources
    minors                      the minor versions of Kubernetes, and the rules that differ between them
    matching                    node selectors, taints and tolerations
"""
