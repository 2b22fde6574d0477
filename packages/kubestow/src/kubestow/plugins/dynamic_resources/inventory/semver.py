"""Semantic versions 2.0.0, parsed as strictly as Kubernetes does in device attributes and selectors.

Numbers are limited to 64 bits. Only the CEL function ``semver(text, true)`` normalizes a version before parsing it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Version"]

_NUMBER = r"(?:0|[1-9]\d*)"
_LABEL = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SYNTAX = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_LABEL}(?:\.{_LABEL})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_UINT64 = range(2**64)


@dataclass(frozen=True, slots=False)
class Version:
    """A version without build metadata, which is relevant neither for order nor for equality."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Version:
        """Parse "1.2.3-rc.1+build". Raises ValueError for anything but a complete version."""
        match = _SYNTAX.fullmatch(text)
        if match is None or any(int(number) not in _UINT64 for number in match.group(1, 2, 3)):
            raise ValueError(f'"{text}" is not a semantic version (expected major.minor.patch, such as "1.2.3")')
        major, minor, patch, prerelease = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else ())

    @classmethod
    def parse_normalized(cls, text: str) -> Version:
        """Parse "v1.2" and "01.2.3" too: drops a leading v and leading zeros, and adds missing numbers.

        Raises ValueError if that does not give a version.
        """
        core, separator, rest = text.removeprefix("v").partition(next((c for c in text if c in "-+"), "-"))
        numbers = core.split(".")
        if len(numbers) > 3 or not all(number.isascii() and number.isdigit() for number in numbers):
            return cls.parse(text)
        numbers += ["0"] * (3 - len(numbers))
        return cls.parse(".".join(number.lstrip("0") or "0" for number in numbers) + separator + rest)

    @cached_property
    def sort_key(self) -> tuple[object, ...]:
        """Orders versions by precedence: a prerelease before its release, numeric labels before others."""
        labels = tuple((0, int(label), "") if label.isdigit() else (1, 0, label) for label in self.prerelease)
        return (self.major, self.minor, self.patch, not labels, labels)
