"""The collector: reads samples in the background, so that no scheduling cycle waits for metrics.

Whatever a source does (fail, hang, return nonsense), the scheduler goes on: the samples collected last are used until
they expire, and nodes without samples are scored by the rule of the plugin. A failure is logged when it begins or
changes, not every time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.errors import KubestowError
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import Handle
from kubestow.log_fields import fields
from kubestow_contrib.node_load.usage import NodeUsage, UsageSample, usable

_log = logging.getLogger(__name__)

#: The name of the event that new samples are.
_NODE_USAGE = "NodeUsage"
#: What plugins register whose scores depend on samples.
NEW_SAMPLES = on(_NODE_USAGE, Action.UPDATE, invalidates=Invalidation.ALL, requeues=False)
#: The pause between two collections, in seconds.
COLLECTION_PERIOD = 30.0
#: A collection is cancelled after so many seconds.
_TIME_LIMIT = 20.0


class UsageSource(Protocol):
    """Where samples come from."""

    async def read(self) -> Mapping[str, UsageSample]:
        """The present samples by node name. Raises KubestowError."""


class Collector:
    """Collects the samples of a source for one plugin.

    ``on_collected`` is called after each collection, failed ones included; whether results of the plugin may have
    changed for another reason than new samples.
    """

    def __init__(
        self, plugin: str, handle: Handle, source: UsageSource, on_collected: Callable[[], bool] = lambda: False
    ) -> None:
        self._plugin, self._handle, self._source, self._on_collected = plugin, handle, source, on_collected
        self.usage = NodeUsage(handle.cluster.nodes)
        self._collected: Mapping[str, UsageSample] = {}
        #: Why the last collection failed, "" if it did not.
        self._failure = ""
        handle.run_periodically(COLLECTION_PERIOD, self.collect)

    async def collect(self) -> None:
        """Read the source once, and drop what cannot be used."""
        try:
            async with asyncio.timeout(_TIME_LIMIT):
                self._collected = await self._source.read()
        except TimeoutError:
            self._failed(f"no answer within {_TIME_LIMIT:.0f} s")
        except KubestowError as error:
            self._failed(str(error))
        else:
            self._failed("")
        now = self._handle.now().timestamp()
        checked = ((name, usable(sample, now)) for name, sample in self._collected.items())
        replaced = self.usage.replace({name: sample for name, sample in checked if sample is not None})
        if self._on_collected() or replaced:
            self._handle.report_change(ClusterEvent(_NODE_USAGE, Action.UPDATE))

    def _failed(self, problem: str) -> None:
        if problem and problem != self._failure:
            _log.warning(
                "plugin %s cannot read node metrics: %s",
                self._plugin,
                problem,
                extra=fields(plugin=self._plugin, err=problem),
            )
        elif self._failure and not problem:
            _log.info("plugin %s reads node metrics again", self._plugin, extra=fields(plugin=self._plugin))
        self._failure = problem
