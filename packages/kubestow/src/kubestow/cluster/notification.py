"""Calls of those that listen to the cluster: plugins, and the state that is derived from several kinds of objects.

A plugin's listener is called from the middle of a change, by the watch or by a decision. One that fails must neither
end the scheduler nor leave the change half made, so its exception is logged, and the others are called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubestow.log_fields import fields

__all__ = ["notify"]

_log = logging.getLogger(__name__)


def notify(listener: Callable[..., object], *arguments: object) -> None:
    """Call a listener; whatever it raises is logged, ``sys.exit()`` and a cancelled future included."""
    try:
        listener(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        name = _name(listener)
        _log.exception(
            "%s failed; what it keeps about the cluster may be wrong from now on", name, extra=fields(listener=name)
        )


def _name(listener: Callable[..., object]) -> str:
    return f"{listener.__module__}.{getattr(listener, '__qualname__', type(listener).__qualname__)}"
