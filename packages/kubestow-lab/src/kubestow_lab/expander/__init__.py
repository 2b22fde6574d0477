"""The expander: which node group a cluster autoscaler should scale up, and simulations as a service.

messages            the protobuf messages: Node and Pod of Kubernetes, cluster-autoscaler's protocol, simulations
scale_up            would pods fit with some nodes more, and which option for a scale-up is the best
expander_server     the gRPC and HTTP services on a watched cluster
"""
