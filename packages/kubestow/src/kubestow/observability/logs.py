"""Log formats: klog's text and Kubernetes' JSON.

Verbosity is klog's ``-v``: at 0 errors, warnings and what an operator must know about a start are logged, at 2 the
result of every scheduling attempt, at 4 and above details for developers. ``V(2)`` is the logging level of verbosity 2,
and :func:`~kubestow.log_fields.fields` passes key-value pairs to a record::

    _log.log(V(2), "Successfully bound pod to node", extra=fields(pod="default/web-1", node="n7"))

    I1121 14:02:11.000417    4711 observability.py:112] "Successfully bound pod to node" pod="default/web-1" node="n7"
    {"ts":1795269731000.417,"caller":"observability/observability.py:112","msg":"Successfully ...","v":2,"pod":"..."}
"""

from __future__ import annotations

import fnmatch
import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubestow.errors import InputError
from kubestow.log_fields import FIELDS, MAX_VERBOSITY, V
from kubestow.observability.log_writer import QueuedHandler

_LETTERS = {logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


def set_up(
    *, verbosity: int, json_format: bool, by_file: Mapping[str, str] | None = None, split_stream: bool = False
) -> None:
    """Log to standard error, up to the given verbosity, from a thread (:mod:`.log_writer`).

    ``by_file`` maps patterns of file names (without ``.py``) to a verbosity of their own. With ``split_stream`` only
    errors go to standard error, all other records to standard output. Raises InputError.
    """
    by_pattern = {pattern: _level(pattern, text) for pattern, text in (by_file or {}).items()}
    handlers: list[logging.Handler] = [QueuedHandler(sys.stderr)]
    if split_stream:
        handlers[0].setLevel(logging.ERROR)
        handlers.append(QueuedHandler(sys.stdout))
        handlers[1].addFilter(lambda record: record.levelno < logging.ERROR)
    for handler in handlers:
        handler.setFormatter(JSONFormatter() if json_format else TextFormatter())
        if by_pattern:
            handler.addFilter(_by_file(by_pattern, V(verbosity)))
    logging.basicConfig(handlers=handlers, level=min([V(verbosity), *by_pattern.values()]))
    # The verbosity of Kubernetes components does not apply to libraries, which log at other levels.
    for library in ("asyncio", "aiohttp", "kubernetes_asyncio"):
        logging.getLogger(library).setLevel(max(V(verbosity), logging.WARNING if verbosity < MAX_VERBOSITY else 0))


def _level(pattern: str, text: str) -> int:
    if not text.isdigit():
        raise InputError("--vmodule", f"expected {pattern}=N, got {pattern}={text}")
    return V(int(text))


def _by_file(levels: Mapping[str, int], default: int) -> Callable[[logging.LogRecord], bool]:
    def is_enabled(record: logging.LogRecord) -> bool:
        name = record.filename.removesuffix(".py")
        level = next((level for pattern, level in levels.items() if fnmatch.fnmatch(name, pattern)), default)
        return record.levelno >= level

    return is_enabled


def _fields_of(record: logging.LogRecord) -> dict[str, Any]:
    pairs = dict(getattr(record, FIELDS, {}))
    if record.exc_info and record.exc_info[1] is not None:
        pairs.setdefault("err", f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}")
    return pairs


class TextFormatter(logging.Formatter):
    """klog's text format. The traceback of an error follows on separate lines."""

    def format(self, record: logging.LogRecord) -> str:
        letter = _LETTERS.get(record.levelno, "I")
        timestamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1e6)
        caller = f"{record.process:7d} {record.filename}:{record.lineno}"
        pairs = "".join(f" {name}={_quoted(value)}" for name, value in _fields_of(record).items())
        line = f"{letter}{timestamp}.{micros:06d} {caller}] {_quoted(record.getMessage())}{pairs}"
        if record.exc_info and record.levelno >= logging.ERROR:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JSONFormatter(logging.Formatter):
    """One JSON object per line: ``ts`` in milliseconds, ``caller``, ``msg``, ``v`` (not for errors), then fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "ts": round(record.created * 1000, 4),
            "caller": f"{record.name.removeprefix('kubestow.').replace('.', '/')}.py:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.ERROR:
            entry["v"] = max(0, MAX_VERBOSITY if record.levelno <= logging.DEBUG else logging.INFO - record.levelno)
        entry |= {name: value for name, value in _fields_of(record).items() if name not in entry}
        if record.exc_info and record.levelno >= logging.ERROR:
            entry["stacktrace"] = self.formatException(record.exc_info)
        return _printable(json.dumps(entry, separators=(",", ":"), default=str, ensure_ascii=False))


def _quoted(value: Any) -> str:
    return _printable(json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else str(value))


def _printable(text: str) -> str:
    """The text with escapes for characters that could end a line or control a terminal, such as ESC and CSI."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in text)
