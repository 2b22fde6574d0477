"""How the text of a flag is read, and what its default looks like in ``--help``.

The kinds are those of Go's pflag. A flag that is given more than once adds to a list or a map; of anything else the
last one counts. A value that cannot be read is an InputError that names the flag.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubestow.config import Duration
from kubestow.serving.options import SNICertificate

__all__ = [
    "ADDRESS",
    "BOOL",
    "DURATION",
    "FLOAT",
    "INT",
    "INTS",
    "MAP",
    "PATH",
    "PORT",
    "SNI",
    "STRING",
    "STRINGS",
    "Kind",
    "one_of",
]

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of values. ``read`` takes all texts that were given and raises ValueError saying what was expected."""

    name: str
    read: Callable[[Sequence[str]], Any]
    write: Callable[[Any], str] = str


def _last(read: Callable[[str], Any]) -> Callable[[Sequence[str]], Any]:
    return lambda texts: read(texts[-1])


def _bool(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return text in _TRUE


def _int(text: str) -> int:
    try:
        return int(text, 10)
    except ValueError:
        raise ValueError("a whole number") from None


def _port(text: str) -> int:
    port = _int(text)
    if not 0 <= port <= 65535:
        raise ValueError("a number between 0 and 65535, 0 turning the secure port off")
    return port


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number") from None


def _duration(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise ValueError(f'a duration such as "1m30s" ({error})') from None


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("an IP address") from None


def _strings(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for text in texts for part in text.split(",") if part)


def _ints(texts: Sequence[str]) -> tuple[int, ...]:
    return tuple(_int(part) for part in _strings(texts))


def _map(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        for part in _outside_quotes(text):
            name, equals, value = part.partition("=")
            if not equals or not name.strip():
                raise ValueError("name=value, separated by commas")
            pairs[name.strip()] = value.strip()
    return pairs


def _outside_quotes(text: str) -> list[str]:
    """The parts between equals-carrying commas: ``m,label='a,b',n=c`` is two, for names may hold a comma as well."""
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


def _sni(texts: Sequence[str]) -> tuple[SNICertificate, ...]:
    return tuple(_sni_pair(text) for text in texts)


def _sni_pair(text: str) -> SNICertificate:
    files, _, names = text.partition(":")
    certificate, comma, key = files.partition(",")
    if not comma or not certificate or not key:
        raise ValueError("certificate,key or certificate,key:name,name")
    return SNICertificate(Path(certificate), Path(key), tuple(name for name in names.split(",") if name))


def _listed(values: Sequence[Any]) -> str:
    return "[" + ",".join(map(str, values)) + "]"


def _path(text: str) -> Path | None:
    return Path(text) if text else None


STRING = Kind("string", _last(str))
PATH = Kind("string", _last(_path), lambda path: "" if path is None else str(path))
BOOL = Kind("", _last(_bool), lambda value: str(value).lower())
INT = Kind("int", _last(_int))
PORT = Kind("int", _last(_port))
FLOAT = Kind("float", _last(_float), lambda value: f"{value:g}")
DURATION = Kind("duration", _last(_duration))
ADDRESS = Kind("ip", _last(_address))
STRINGS = Kind("strings", _strings, _listed)
INTS = Kind("ints", _ints, _listed)
MAP = Kind("mapStringString", _map, lambda pairs: ",".join(f"{name}={value}" for name, value in pairs.items()))
SNI = Kind("namedCertKey", _sni, lambda pairs: _listed([f"{pair.certificate},{pair.key}" for pair in pairs]))


def one_of(*choices: str, name: str = "string") -> Kind:
    """One of some words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return Kind(name, _last(read))
