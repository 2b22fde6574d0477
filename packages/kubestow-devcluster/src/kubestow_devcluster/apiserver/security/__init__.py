"""Security: who a request is from, and what its user is allowed.

``users`` and ``authentication`` find the user of a request; a server without tokens and without client certificates
authenticates every request as the administrator, except those with the token of a service account. ``authorization``
decides by the mode AlwaysAllow or by RBAC, with the roles of ``bootstrap_policy``, and ``escalation`` what users can
grant.
"""
