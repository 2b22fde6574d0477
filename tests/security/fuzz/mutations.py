"""Mutations of bytes, the same ones for the same seed: what a fuzzer does without the guidance of coverage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from tests.security.fuzz.contained import MAX_INPUT

#: Values that readers tend to mistake, in JSON, YAML and CSV.
VALUES = (
    *(
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'""',
        b"[{}]",
        b'{"a":1}',
        b"-1",
        b"0",
        b"1.5",
        b"-0.0",
        b"1e999",
        b"NaN",
        b".inf",
    ),
    *(b"9223372036854775808", b"18446744073709551616", b"9" * 400, b'"9e999"', b'"\\ud800"', b'"\\u0000"', b"\xff\xfe"),
    *(
        b"~",
        b"!!binary x",
        b"!!int a",
        b"&a [*a]",
        b"*a",
        b"<<: *a",
        b"---\n",
        b"? ",
        b"- ",
        b": ",
        b"\t",
        b"\x00",
        b"\r",
    ),
    *(b"2026-01-01", b"2001-01-01T00:00:00.999999999999Z", b"1_000", b"0o7", b"1:30", b"\xe2\x80\xa8", b"{" * 300),
    *(
        b"[" * 300,
        b"(" * 300,
        b'{"a":' * 120,
        b"!" * 300,
        b"1." + b"0" * 300,
        b"-" * 300,
        b"\x1b[31m",
        b"${x}",
        b"{{.X}}",
    ),
)
_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|[A-Za-z0-9_.-]+|\s+|[^\s\w]')


def mutations(seeds: Sequence[bytes], random: Random) -> Iterator[bytes]:
    """The seeds themselves, then one to four changes of one of them, without end."""
    yield from seeds
    words = words_of(seeds)
    while True:
        content = random.choice(seeds)
        for _ in range(random.randint(1, 4)):
            content = changed(content, random.choice(seeds), words, random)
        yield content[:MAX_INPUT]


def words_of(seeds: Sequence[bytes]) -> list[bytes]:
    """The words of seeds, and VALUES."""
    return sorted({word for seed in seeds for word in _WORD.findall(seed)} | set(VALUES))


def changed(content: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """An input with one change, perhaps by a part of another one or by one of ``words``."""
    kind = random.randrange(8)
    if kind <= 2:  # a word for another one: most inputs stay well-formed
        found = list(_WORD.finditer(content))
        if not found:
            return random.choice(words)
        word = random.choice(found)
        return content[: word.start()] + random.choice(VALUES if kind else words) + content[word.end() :]
    begin, end = sorted((random.randint(0, len(content)), random.randint(0, len(content))))
    end = min(end, begin + random.choice((1, 4, 64, 4096)))
    part = content[begin:end]
    if kind == 3:
        return content[:begin] + content[end:]
    if kind == 4:
        return content[:end] + part * random.choice((1, 2, 30)) + content[end:]
    if kind == 5:
        return content[:begin] + other[random.randint(0, len(other)) :]
    if kind == 6:
        return content[:begin] + random.choice(words) + content[begin:]
    return (
        content[:begin] + bytes(byte ^ 1 << random.randrange(8) for byte in part[:4]) + content[begin + len(part[:4]) :]
    )
