"""The port through which the plugins of a profile are watched at work.

The runtime tells what it asked of whom, what came back and how long that took. It does so for counting and for looking,
never for deciding: whether anybody watches changes no answer.
"""

from __future__ import annotations

from typing import Any

from kubestow.framework.status import Code

__all__ = ["PluginObserver"]


class PluginObserver:
    """Does nothing; derive from it to watch one profile. No method may block or raise: most are called for every pod.

    Extension points are spelled as in the reference (``PreFilter``); seconds are those of the scheduler's clock.
    """

    def asked(self, plugin: str, extension_point: str, answer: Any, seconds: float) -> None:
        """A plugin was asked once, about any number of nodes. ``answer`` is what it said, or the PluginError.

        An awaitable is told of twice: when it was given, and with what came of it.
        """

    def passed(self, extension_point: str, code: Code, seconds: float) -> None:
        """All plugins of an extension point have been asked, or as many as it took to decide."""

    def attempt_ended(self, outcome: str, seconds: float, *, deciding: float | None) -> None:
        """An attempt to schedule a whole gang has ended, in the words of :class:`kubestow.framework.gang.GangOutcome`.

        So many of the seconds as ``deciding`` says went into deciding; None when it was clear without trying.
        """
