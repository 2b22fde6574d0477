"""The verbs that an extender serves, and its entry for the ``extenders`` of a KubeSchedulerConfiguration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from kubestow.framework.interface import MAX_SCORE
from kubestow.framework.profile import Profile

__all__ = ["ExtenderCapabilities", "config_snippet"]


@dataclass(frozen=True, slots=True)
class ExtenderCapabilities:
    """The verbs that an extender serves; with ``node_cache_capable`` it gets node names instead of full nodes.

    ``weight`` gives its scores the same weight as those of the plugins in process.
    """

    filters: bool
    prioritizes: bool
    preempts: bool
    binds: bool
    node_cache_capable: bool
    weight: int

    @classmethod
    def of(cls, profile: Profile, *, node_cache_capable: bool, binds: bool = False) -> ExtenderCapabilities:
        """The capabilities of a profile. preempt and bind need a cache, because their requests have no nodes."""
        evaluations = profile.evaluations
        filters = evaluations.has_filters
        weight = evaluations.max_total // MAX_SCORE
        return cls(
            filters,
            weight > 0,
            filters and node_cache_capable,
            binds and node_cache_capable,
            node_cache_capable,
            weight,
        )

    @property
    def verbs(self) -> list[str]:
        """The served verbs, which are also the URL paths."""
        verbs = {"filter": self.filters, "prioritize": self.prioritizes, "preempt": self.preempts, "bind": self.binds}
        return [verb for verb, served in verbs.items() if served]


def config_snippet(capabilities: ExtenderCapabilities, url: str) -> str:
    """The ``extenders`` of a KubeSchedulerConfiguration, as YAML."""
    extender: dict[str, Any] = {"urlPrefix": url}
    extender |= {f"{verb}Verb": verb for verb in capabilities.verbs}
    if capabilities.prioritizes:
        extender["weight"] = capabilities.weight
    extender["nodeCacheCapable"] = capabilities.node_cache_capable
    if url.startswith("https:"):
        extender["enableHTTPS"] = True
        extender["tlsConfig"] = {"caFile": "/path/to/ca.crt"}
    text: str = yaml.safe_dump({"extenders": [extender]}, sort_keys=False)
    return text
