"""What an extender offers, and the lines by which another scheduler's configuration makes use of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from kubestow.framework.interface import MAX_SCORE
from kubestow.framework.profile import Profile

__all__ = ["Offer", "stanza"]


@dataclass(frozen=True, slots=True)
class Offer:
    """The verbs that are served. ``cached``: nodes are sent by name, for their state is known here.

    ``weight`` makes the scores count as much as those of the plugins would in process.
    """

    filters: bool
    prioritizes: bool
    preempts: bool
    binds: bool
    cached: bool
    weight: int

    @classmethod
    def of(cls, profile: Profile, *, cached: bool, binds: bool = False) -> Offer:
        """What a profile can do. To judge a preemption one has to know the nodes, which are not sent then."""
        evaluations = profile.evaluations
        filters = evaluations.filters_anything
        weight = evaluations.highest_total // MAX_SCORE
        return cls(filters, weight > 0, filters and cached, binds and cached, cached, weight)

    @property
    def verbs(self) -> list[str]:
        """The verbs, which are also the paths."""
        served = ("filter", self.filters), ("prioritize", self.prioritizes), ("preempt", self.preempts)
        return [verb for verb, offered in (*served, ("bind", self.binds)) if offered]


def stanza(offer: Offer, url: str) -> str:
    """The ``extenders`` of a KubeSchedulerConfiguration, in YAML."""
    extender: dict[str, Any] = {"urlPrefix": url}
    extender |= {f"{verb}Verb": verb for verb in offer.verbs}
    if offer.prioritizes:
        extender["weight"] = offer.weight
    extender["nodeCacheCapable"] = offer.cached
    if url.startswith("https:"):
        extender["enableHTTPS"] = True
        extender["tlsConfig"] = {"caFile": "/path/to/the/authority/of/its/certificate.crt"}
    text: str = yaml.safe_dump({"extenders": [extender]}, sort_keys=False)
    return text
