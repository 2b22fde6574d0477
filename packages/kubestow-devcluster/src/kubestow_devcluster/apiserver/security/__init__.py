"""Security: who a request is from, and what its user is allowed.

``authentication`` finds the user of a request; a server without tokens and without client certificates
authenticates every request as the administrator, except those with the token of a service account. ``authorization``
decides by the mode AlwaysAllow or by RBAC, and what users can grant; it has the default roles.
"""
