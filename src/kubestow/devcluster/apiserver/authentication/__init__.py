"""Authentication: client certificates, bearer tokens of a token file, anonymous access and impersonation.

There is no authorization: every authenticated user is allowed everything. A server without tokens and without client
certificates authenticates every request as the administrator.
"""
