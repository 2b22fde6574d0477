"""Kubernetes objects as the scheduler reads them: the fields that scheduling needs, decoded straight from bytes."""
