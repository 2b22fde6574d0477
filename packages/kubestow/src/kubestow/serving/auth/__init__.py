"""Delegating authentication and authorization, as kube-scheduler configures them (semantics 1.4).

authentication          client certificate, bearer token, front proxy, or anonymous
authorization           always-allowed paths, system:masters, or a SubjectAccessReview
reviews                 TokenReviews and SubjectAccessReviews, with cached results
client_trust            the CAs whose client certificates are accepted, and the front proxies
cluster_authentication  the client trust that the cluster publishes
trust_reloader          keeps the client trust up to date
"""
