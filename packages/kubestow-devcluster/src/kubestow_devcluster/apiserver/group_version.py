"""Names of API groups, versions and resources, as ``k8s.io/apimachinery/pkg/runtime/schema`` has them."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")


class GroupVersion(NamedTuple):
    """``apps/v1``; the core group is the empty string."""

    group: str
    version: str

    def __str__(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class GroupResource(NamedTuple):
    """``deployments.apps``: how messages and storage keys name a resource, without its version."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A sort key in the order of discovery: v2, v1, v1beta1, v1alpha1, then any other names."""
    parsed = _VERSION.fullmatch(version)
    if parsed is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[parsed[2]]
    return (stage, -int(parsed[1]), -int(parsed[3] or 0), version)
