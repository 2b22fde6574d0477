"""What plugins report about themselves, as elements that the page shows; read on request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.errors import PluginError
from kubestow.framework.interface import ReportingPlugin
from kubestow.reports.page import block_element
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.scheduler import Scheduler

#: A report is used again for so many seconds, and for so many times what it took to make: it costs at most 2 % CPU.
_SECONDS, _FACTOR = 2.0, 50.0


def reporting_plugins(scheduler: Scheduler) -> Mapping[str, ReportingPlugin]:
    """The plugins of a scheduler that report about themselves, by name; of equal names that of the first profile."""
    found: dict[str, ReportingPlugin] = {}
    for profile in scheduler.profiles.values():
        for plugin in profile.plugins:
            if isinstance(plugin, ReportingPlugin):
                found.setdefault(plugin.name, plugin)
    return found


class PluginReports:
    """The reports of the plugins of one scheduler."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler, self._clock = scheduler, clock
        #: Each report by the name of its plugin, and until when it is used, in seconds of the clock.
        self._made: dict[str, tuple[float, dict[str, Any]]] = {}

    def report(self, name: str) -> dict[str, Any] | None:
        """The sections that a plugin reports, with elements as :class:`~kubestow.reports.elements.Element` has them.

        None if no plugin of this name reports. Raises PluginError if it fails.
        """
        began = self._clock.monotonic()
        used_until, made = self._made.get(name, (0.0, None))
        plugin = reporting_plugins(self._scheduler).get(name)
        if plugin is None or (made is not None and began < used_until):
            return made
        try:
            sections = [
                {"title": each.title, "content": [block_element(block).data for block in each.blocks]}
                for each in plugin.report(from_now=True).sections
            ]
        except Exception as error:
            raise PluginError(name, "report", f"{type(error).__name__}: {error}") from error
        made = {"title": plugin.report_title, "sections": sections}
        ended = self._clock.monotonic()
        self._made[name] = ended + max(_SECONDS, _FACTOR * (ended - began)), made
        return made
