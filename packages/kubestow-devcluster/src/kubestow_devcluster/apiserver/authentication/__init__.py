"""Authentication: client certificates, tokens of a token file and of service accounts, anonymous access, impersonation.

A server without tokens and without client certificates authenticates every request as the administrator, except those
with the token of a service account.
"""
