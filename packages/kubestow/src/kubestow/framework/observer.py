"""The port through which calls of a profile's plugins are observed.

The runtime reports which plugin it called at which extension point, the result, and the time it took. Observers count
and measure; they never influence a decision.
"""

from __future__ import annotations

from typing import Any

from kubestow.framework.status import Code

__all__ = ["PluginObserver"]


class PluginObserver:
    """Does nothing; subclass it to observe one profile. No method may block or raise: most are called for every pod.

    Extension points are spelled as in kube-scheduler (``PreFilter``); seconds are those of the injected clock.
    """

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        """A plugin was called once, for any number of nodes. ``result`` is what it returned, or the PluginError.

        A call that returns an awaitable is reported twice: with the awaitable, and with the status it ends with.
        """

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        """All plugins of an extension point have been called, or as many as it took to decide."""

    def gang_attempt_ended(self, outcome: str, seconds: float, *, deciding: float | None) -> None:
        """An attempt to schedule a gang has ended; ``outcome`` is a :class:`kubestow.framework.gang.GangOutcome`.

        ``deciding`` is the part of the seconds that went into placement; None when the gang was rejected without it.
        """

    def queueing_hint_called(self, plugin: str, event: str, hint: str, seconds: float) -> None:
        """A plugin's queueing hint returned ``Queue`` or ``QueueSkip`` for the event of this label, or ``Error``."""
