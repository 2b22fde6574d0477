"""The client for a real API server, one of the backends that a scheduler runs on.

    cluster_client         the scheduler's ClusterAPI, composed of the modules below
    reflector              list and watch of one collection into a subscriber
    decoding               list pages, watch events and objects from bytes
    pod_client             bindings, status patches, deletions and reads of pods
    resource_claim_client  ResourceClaims
    merge_patch            patches of objects of other resources
    event_recorder         Kubernetes events, written in the background, with event series
    leader_election        the leader elector
    lease_lock             the Lease that candidates compete for
    http_extender          extenders over HTTP; extender_tls has their TLS settings
    raw_object_cache       the JSON of pods and nodes, for extenders
    rest                   transport, rate limiter, credentials, kubeconfig

Start with :class:`kubestow.client.cluster_client.ClusterClient`.
"""
