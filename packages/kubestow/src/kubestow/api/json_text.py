"""JSON as Go accepts and emits it, turned into JSON that every reader here accepts.

An API server stores raw extensions, such as the opaque parameters of a ResourceClaim, as they came. Go's encoding/json
takes escapes of lone surrogates and bytes that are not UTF-8 for U+FFFD, and follows 10,000 levels of nesting;
:mod:`msgspec` rejects the former, and every recursive reader ends somewhere below a thousand levels. Objects of tenants
are therefore read a second time from :func:`readable_json` if the first, direct attempt fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of decoding: invalid JSON or types, invalid UTF-8, too deeply nested."""

MAX_DEPTH = 200
"""Levels of nesting that are kept: several times those of any field that is read, and readable by recursion."""

CUT_OFF = f"kubestow: nested deeper than {MAX_DEPTH} levels"
"""The text that replaces an array or object of a deeper level."""

_CUT_OFF = json.dumps(CUT_OFF).encode()
_REPLACEMENT = "\ufffd"
_LARGEST = 1.7976931348623157e308
#: Longer integers are beyond the range of a float, and Python limits the digits that it converts.
_MOST_DIGITS = 308
#: An escape of a surrogate pair, of a lone surrogate (the only group), or any other.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_ANY_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_OTHER, _OPENING, _CLOSING, _QUOTE = range(4)
_KINDS = {"[": _OPENING, "{": _OPENING, "]": _CLOSING, "}": _CLOSING, '"': _QUOTE}
#: Of each byte, which of these it is.
_MARKS = bytes(_KINDS.get(chr(byte), _OTHER) for byte in range(256))


def readable_json(data: bytes) -> bytes:
    """The same JSON without what only Go accepts, in linear time and without recursion.

    Each byte that is not part of a UTF-8 character, and each escape of a lone surrogate, becomes U+FFFD as in Go.
    Arrays and objects below MAX_DEPTH levels become the string CUT_OFF. What is not JSON at all stays so.
    """
    return _without_deep_values(without_lone_surrogates(_in_utf8(data)))


def parse_json(data: bytes | msgspec.Raw) -> Any:
    """JSON as plain data, at most MAX_DEPTH levels deep. Raises one of UNDECODABLE if it is not JSON.

    Numbers beyond the range of a float are the largest or the smallest one.
    """
    text = readable_json(bytes(data))
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:  # a number out of range
        pass
    try:
        return json.loads(text, parse_float=_float, parse_int=_int, parse_constant=_reject_constant)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None


def decode_readable(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """What a decoder reads from JSON as Go emits it. Raises one of UNDECODABLE."""
    try:
        return decoder.decode(data)
    except UNDECODABLE:
        return decoder.decode(readable_json(bytes(data)))


def is_too_deep(value: Any) -> bool:
    """Whether plain data has more than MAX_DEPTH levels of lists and dictionaries."""
    for depth, level in enumerate(_levels(value)):
        if depth >= MAX_DEPTH and any(isinstance(item, (dict, list)) for item in level):
            return True
    return False


def is_cut_off(value: Any) -> bool:
    """Whether plain data has lost a part to :func:`readable_json`, so that it must not be passed on."""
    return any(item == CUT_OFF for level in _levels(value) for item in level if isinstance(item, str))


def _levels(value: Any) -> Iterator[list[Any]]:
    """The value, then the items in it, then the items in these, and so on."""
    level = [value]
    while level:
        yield level
        containers = (one for one in level if isinstance(one, (dict, list)))
        level = [item for one in containers for item in (one.values() if isinstance(one, dict) else one)]


def _in_utf8(data: bytes) -> bytes:
    try:
        data.decode()
    except UnicodeDecodeError:
        return _NOT_UTF8.sub(_REPLACEMENT, data.decode(errors="surrogateescape")).encode()
    return data


def without_lone_surrogates(data: bytes) -> bytes:
    """The same JSON with U+FFFD in place of each escape of half a surrogate pair, which has the same length."""
    if _SURROGATE_ESCAPE.search(data) is None:
        return data
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], data)


def _without_deep_values(data: bytes) -> bytes:
    if data.count(b"[") + data.count(b"{") <= MAX_DEPTH:
        return data
    # Escapes are blanked for it, so every quotation mark begins or ends a string. Lengths and positions stay.
    plain = _ANY_ESCAPE.sub(b"  ", data) if b"\\" in data else data
    marks = np.frombuffer(plain.translate(_MARKS), np.uint8)
    positions = np.flatnonzero(marks)
    marks = marks[positions]
    is_inside_string = np.cumsum(marks == _QUOTE, dtype=np.uint8) & 1  # only the parity counts
    is_bracket = (marks != _QUOTE) & (is_inside_string == 0)
    positions, is_opening = positions[is_bracket], marks[is_bracket] == _OPENING
    depths = np.cumsum(np.where(is_opening, 1, -1), dtype=np.int64)
    if depths.max(initial=0) <= MAX_DEPTH:
        return data
    begins = positions[is_opening & (depths == MAX_DEPTH + 1)].tolist()
    ends = positions[~is_opening & (depths == MAX_DEPTH)].tolist()
    kept: list[bytes] = []
    done = 0
    for begin, end in zip(begins, ends, strict=False):  # without strictness: a value may not end
        kept += (data[done:begin], _CUT_OFF)
        done = end + 1
    return b"".join((*kept, data[done:]))


def _float(text: str) -> float:
    return max(-_LARGEST, min(_LARGEST, float(text)))


def _int(text: str) -> int | float:
    return int(text) if len(text) <= _MOST_DIGITS else _float(text)


def _reject_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
