"""The result of a conversion: a v1 configuration with warnings, or an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kubestow.config.field_errors import FieldError

__all__ = ["Conversion", "ConversionError"]


class Conversion(NamedTuple):
    """The data of a v1 configuration; ``warnings`` list the settings that were changed or omitted."""

    data: dict[str, Any]
    warnings: tuple[FieldError, ...]


class ConversionError(Exception):
    """An old configuration has settings without a v1 counterpart, listed in ``errors``."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = errors
        super().__init__("; ".join(map(str, errors)))
