"""SeccompProfiles of the security profiles operator, and the system calls that they allow a pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from kubestow.api.core import SecurityContext
from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.pods.shapes import Shape

__all__ = ["References", "SeccompProfile", "allowed", "references"]

References = tuple[tuple[str, str], ...]
"""Namespaces and names of the profiles of a pod, sorted."""

_LOCALHOST = "Localhost"
_ALLOWING = ("SCMP_ACT_ALLOW", "SCMP_ACT_LOG")


class Syscalls(APIObject, frozen=True):
    """``spec.syscalls[]``: what happens on some system calls."""

    action: str = ""
    names: list[str] = []


class SeccompProfileSpec(APIObject, frozen=True):
    """``spec``."""

    syscalls: list[Syscalls] = []


class SeccompProfile(CustomObject, frozen=True):
    """A profile of the operator."""

    resource: ClassVar[str] = "seccompprofiles.v1beta1.security-profiles-operator.x-k8s.io"
    spec: SeccompProfileSpec = SeccompProfileSpec()


def references(shape: Shape) -> References:
    """The profiles that the security contexts of a pod and its containers name; init containers do not count."""
    contexts = (shape.spec.security_context, *(container.security_context for container in shape.spec.containers))
    found = {reference for context in contexts if (reference := _reference(context)) is not None}
    return tuple(sorted(found))


def allowed(catalog: Catalog[SeccompProfile], profiles: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The system calls that any of some profiles allows or logs; none for a profile that does not exist.

    A profile without a namespace is found by its name alone, as newer versions of the operator have it.
    """
    found: set[str] = set()
    for namespace, name in profiles:
        profile = catalog.get(namespace, name) or catalog.get("", name)
        if profile is not None:
            for syscalls in profile.spec.syscalls:
                if syscalls.action in _ALLOWING:
                    found.update(syscalls.names)
    return frozenset(found)


def _reference(context: SecurityContext | None) -> tuple[str, str] | None:
    """The profile at a path such as ``operator/<namespace>/<name>.json``."""
    profile = None if context is None else context.seccomp_profile
    if profile is None or profile.type != _LOCALHOST:
        return None
    directory, _, file = profile.localhost_profile.rpartition("/")
    name = file.rpartition(".")[0] or file
    namespace = directory.rpartition("/")[2]
    return (namespace, name) if namespace and name else None
