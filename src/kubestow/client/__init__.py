"""A real API server as a world for the scheduler to run in.

    credentials  where the server is and how to convince it; from kubeconfig (files) or the pod's service account
    transport    requests and streams over persistent connections, failures as errors of our tree; pacing them
    reflector    list+watch of one collection into a subscriber; decoding makes objects of bytes
    writes       bindings, status patches, deletions; claims on devices; events records what happened, in the background
    lease        leader election
    remote       all of it put together as the scheduler's ClusterAPI

Start with :class:`kubestow.client.cluster_client.ClusterClient`.
"""
