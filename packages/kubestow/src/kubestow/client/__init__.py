"""The client for a real API server, one of the backends that a scheduler runs on.

    cluster_client    the scheduler's ClusterAPI, composed of the modules below
    reflector         list and watch of one collection into a subscriber
    watch_decoding    list pages, watch events and objects from bytes
    object_requests   bindings, status patches, deletions and reads of pods; ResourceClaims; merge
                      patches; lists of whole collections
    event_recorder    Kubernetes events, written in the background, with event series
    leader_election   the leader elector, and the Lease that candidates compete for
    http_extender     extenders over HTTP
    raw_object_cache  the JSON of pods and nodes, for extenders
    http_json         JSON from other servers, such as Prometheus
    rest              transport, connections, credentials, kubeconfig

Start with :class:`kubestow.client.cluster_client.ClusterClient`.
"""
