"""An extender without HTTP whose responses are scripted; a callback can change the cluster during a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from kubestow import config
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ExtenderError
from kubestow.framework.interface import Victims
from kubestow.scheduling.extenders.stages import ExtenderFilterResponse, ExtenderVictims

VERBS = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}


class ScriptedExtender:
    """Gives the scripted responses; ``calls`` lists (verb, pod, nodes). ``during_call`` runs before each response."""

    def __init__(
        self,
        *verbs: str,
        passes: Collection[str] | None = None,
        failed: Mapping[str, str] | None = None,
        unresolvable: Mapping[str, str] | None = None,
        scores: Mapping[str, int] | None = None,
        victims: Mapping[str, ExtenderVictims] | None = None,
        fails: str = "",
        during_call: Callable[[str], Awaitable[None]] | None = None,
        **settings: Any,
    ) -> None:
        name = str(settings.pop("urlPrefix", "http://extender"))
        offered = {f"{verb}Verb": verb for verb in verbs}
        document = {"urlPrefix": name, "weight": 1, **offered, **settings}
        self.settings = msgspec.convert(document, config.Extender)
        self.passes, self.failed, self.unresolvable = passes, failed or {}, unresolvable or {}
        self.scores, self.victims, self.fails = scores or {}, victims, fails
        self.during_call = during_call
        self.calls: list[tuple[str, str, list[str]]] = []

    async def _called(self, verb: str, pod: PodInfo, nodes: Collection[str]) -> None:
        self.calls.append((verb, pod.name, sorted(nodes)))
        if self.during_call is not None:
            await self.during_call(verb)
        if self.fails:
            raise ExtenderError(self.settings.url_prefix, verb, self.fails)

    async def filter(self, pod: PodInfo, names: Sequence[str]) -> ExtenderFilterResponse:
        await self._called("filter", pod, names)
        passed = [name for name in names if self.passes is None or name in self.passes]
        return ExtenderFilterResponse(passed, self.failed, self.unresolvable)

    async def prioritize(self, pod: PodInfo, names: Sequence[str]) -> Sequence[tuple[str, int]]:
        await self._called("prioritize", pod, names)
        return list(self.scores.items())

    async def preempt(self, pod: PodInfo, offers: Mapping[str, Victims]) -> Mapping[str, ExtenderVictims]:
        await self._called("preempt", pod, offers)
        if self.victims is not None:
            return self.victims
        return {
            name: ExtenderVictims([pod.uid for pod in victims.pods], victims.violations)
            for name, victims in offers.items()
        }

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        await self._called("bind", pod, [node_name])
