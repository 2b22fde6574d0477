"""The types of flag values: parsing, and formatting of defaults for ``--help``.

The types are those of Go's pflag. Repeated flags append to a list or map; otherwise the last value applies. An invalid
value is reported as an InputError that names the flag.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubestow.config import Duration
from kubestow.http.tls import SNICertificate

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


@dataclass(frozen=True, slots=True)
class FlagType:
    """A type of flag values.

    ``parse`` gets the values of all occurrences of the flag and raises ValueError with a description of what it
    expects.
    """

    name: str
    parse: Callable[[Sequence[str]], Any]
    format: Callable[[Any], str] = str


def _last(parse: Callable[[str], Any]) -> Callable[[Sequence[str]], Any]:
    return lambda texts: parse(texts[-1])


def _bool(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return text in _TRUE


def _expecting(expected: str, parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """A parser that describes what it expects, if ``parse`` raises ValueError."""

    def parsed(text: str) -> Any:
        try:
            return parse(text)
        except ValueError:
            raise ValueError(expected) from None

    return parsed


_int = _expecting("an integer", int)


def _port(text: str) -> int:
    port: int = _int(text)
    if not 0 <= port <= 65535:
        raise ValueError("a number between 0 and 65535, where 0 disables the secure port")
    return port


def _fraction(text: str) -> float:
    fraction = float(text)
    if not 0 <= fraction <= 1:
        raise ValueError
    return fraction


def _duration(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise ValueError(f'a duration such as "1m30s" ({error})') from None


def _strings(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(",") if part)


def _map(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        for part in _split_pairs(text):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise ValueError("name=value, separated by commas")
            pairs[name.strip()] = value.strip()
    return pairs


def _split_pairs(text: str) -> list[str]:
    """Split at commas before ``name=``: ``m,label='a,b',n=c`` has two parts, because names can contain commas."""
    parts: list[str] = []
    for quoted, piece in enumerate(text.split("'")):
        for number, part in enumerate([piece] if quoted % 2 else piece.split(",")):
            if number == 0 and parts:
                parts[-1] += part
            elif parts and "=" not in parts[-1]:
                parts[-1] += "," + part
            else:
                parts.append(part)
    return [part for part in parts if part]


def _sni_pair(text: str) -> SNICertificate:
    files, _, names = text.partition(":")
    certificate, comma, key = files.partition(",")
    if not comma or not certificate or not key:
        raise ValueError("certificate,key or certificate,key:name,name")
    return SNICertificate(Path(certificate), Path(key), tuple(name for name in names.split(",") if name))


def _listed(values: Sequence[Any]) -> str:
    return "[" + ",".join(map(str, values)) + "]"


STRING = FlagType("string", _last(str))
PATH = FlagType("string", _last(lambda text: Path(text) if text else None), lambda path: str(path or ""))
BOOL = FlagType("", _last(_bool), lambda value: str(value).lower())
INT = FlagType("int", _last(_int))
PORT = FlagType("int", _last(_port))
FLOAT = FlagType("float", _last(_expecting("a number", float)), lambda value: f"{value:g}")
FRACTION = FlagType("float", _last(_expecting("a number between 0 and 1", _fraction)), lambda value: f"{value:g}")
DURATION = FlagType("duration", _last(_duration))
ADDRESS = FlagType("ip", _last(_expecting("an IP address", lambda text: str(ipaddress.ip_address(text)))))
STRINGS = FlagType("strings", _strings, _listed)
INTS = FlagType("ints", lambda texts: tuple(map(_int, _strings(texts))), _listed)
MAP = FlagType("mapStringString", _map, lambda pairs: ",".join(f"{name}={value}" for name, value in pairs.items()))
SNI = FlagType(
    "namedCertKey",
    lambda texts: tuple(map(_sni_pair, texts)),
    lambda pairs: _listed([f"{pair.certificate},{pair.key}" for pair in pairs]),
)


def one_of(*choices: str, name: str = "string") -> FlagType:
    """An enumeration of ``choices``."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return FlagType(name, _last(parse))
