"""Failures of plugins in a simulation: the log has each once, and all of them are counted.

A plugin that fails does so for most pods, and each of these is tried again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kubestow.log_fields import FIELDS

_LOGGER = logging.getLogger("kubestow")


@dataclass(slots=True)
class PluginFailure:
    """What the log says about a plugin's first failure of a kind, and how many of these there were."""

    plugin: str
    message: str
    count: int = 1

    def __str__(self) -> str:
        return f"{self.message} ({self.count:,} such failures)" if self.count > 1 else self.message


class _Collector(logging.Handler):
    """Counts the errors of plugins by place and exception; passes on the first of each, and all other records."""

    def __init__(self, emitting: logging.Logger) -> None:
        super().__init__()
        self._emitting = emitting
        self._failures: dict[object, PluginFailure] = {}

    @property
    def failures(self) -> tuple[PluginFailure, ...]:
        """In the order of the first of each."""
        return tuple(self._failures.values())

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = getattr(record, FIELDS, {})
        plugin = fields.get("plugin", "")
        if record.levelno >= logging.ERROR and plugin:
            key = plugin, fields.get("extensionPoint", fields.get("call", "")), *_place(record)
            known = self._failures.get(key)
            if known is not None:
                known.count += 1
                return
            self._failures[key] = PluginFailure(plugin, record.getMessage())
        self._emitting.callHandlers(record)


def _place(record: logging.LogRecord) -> tuple[object, ...]:
    """The type of an exception and the line that raised it; without one, the line that logged the error."""
    kind, _, traceback = record.exc_info or (None, None, None)
    if traceback is None:
        return record.pathname, record.lineno
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return kind, traceback.tb_frame.f_code.co_filename, traceback.tb_lineno


@contextmanager
def collect_failures() -> Iterator[_Collector]:
    """Collect the failures of plugins that kubestow logs meanwhile. Collections can be nested, the inner one counts."""
    with _handling(_Collector) as collector:
        yield collector


class _Records(logging.Handler):
    """Keeps the records of a run that may be repeated."""

    def __init__(self, emitting: logging.Logger) -> None:
        super().__init__()
        self._emitting = emitting
        self._records: list[logging.LogRecord] = []
        #: The message of the first error, "" without errors.
        self.first_error = ""

    @property
    def any(self) -> bool:
        """Whether there is any record."""
        return bool(self._records)

    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)
        if record.levelno >= logging.ERROR:
            self.first_error = self.first_error or record.getMessage()

    def emit_all(self) -> None:
        """Pass all records on."""
        for record in self._records:
            self._emitting.callHandlers(record)


@contextmanager
def hold_back_records() -> Iterator[_Records]:
    """Keep what kubestow logs meanwhile, to be emitted later or not at all."""
    with _handling(_Records) as records:
        yield records


H = TypeVar("H", bound=logging.Handler)


@contextmanager
def _handling(make: Callable[[logging.Logger], H]) -> Iterator[H]:
    """Have a handler get what kubestow logs, instead of those before, to which its logger passes records on."""
    before = _LOGGER.handlers[:], _LOGGER.propagate
    emitting = logging.Logger(_LOGGER.name)
    emitting.handlers, emitting.propagate, emitting.parent = before[0], before[1], _LOGGER.parent
    handler = make(emitting)
    _LOGGER.handlers, _LOGGER.propagate = [handler], False
    try:
        yield handler
    finally:
        _LOGGER.handlers, _LOGGER.propagate = before
