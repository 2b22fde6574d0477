"""Semantic versions 2.0.0, strict as Kubernetes reads them in device attributes and selectors."""

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
_LARGEST = 2**64


@dataclass(frozen=True, slots=False)
class Version:
    """A version without its build metadata, which neither orders nor distinguishes versions."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read "1.2.3-rc.1+build". Raises ValueError for anything but a complete version."""
        match = _SYNTAX.fullmatch(text)
        if match is None or any(int(number) >= _LARGEST for number in match.group(1, 2, 3)):
            raise ValueError(f'"{text}" is not a semantic version (expected major.minor.patch, such as "1.2.3")')
        major, minor, patch, prerelease = match.groups()
        return cls(int(major), int(minor), int(patch), tuple(prerelease.split(".")) if prerelease else ())

    @classmethod
    def parse_loosely(cls, text: str) -> Version:
        """Read "v1.2" and "01.2.3" too: a leading v, missing parts and leading zeros are mended first."""
        core, separator, rest = text.removeprefix("v").partition(next((c for c in text if c in "-+"), "-"))
        parts = core.split(".")
        if len(parts) > 3 or not all(part.isascii() and part.isdigit() for part in parts):
            return cls.parse(text)
        parts += ["0"] * (3 - len(parts))
        return cls.parse(".".join(part.lstrip("0") or "0" for part in parts) + separator + rest)

    @cached_property
    def order(self) -> tuple[object, ...]:
        """Sorts as versions do: a prerelease before its release, numeric labels before others."""
        labels = tuple((0, int(label), "") if label.isdigit() else (1, 0, label) for label in self.prerelease)
        return (self.major, self.minor, self.patch, not labels, labels)
