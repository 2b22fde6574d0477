"""Authorization: what an authenticated user is allowed, by the mode AlwaysAllow or by RBAC."""
