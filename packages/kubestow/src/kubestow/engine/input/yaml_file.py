"""YAML files of kubestow's own, such as search spaces and node pools: plain data, decoded with clear errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from kubestow.api.formats.yaml_loader import YAMLLoader
from kubestow.errors import InputError

__all__ = ["convert_part", "read_yaml"]


def read_yaml(path: str | Path) -> Any:
    """The plain data of a file with one document. Raises InputError."""
    subject = str(path)
    try:
        return yaml.load(Path(path).read_bytes(), Loader=YAMLLoader)
    except OSError as error:
        raise InputError(subject, f"cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(subject, f"does not parse: {' '.join(str(error).split())}") from None


def convert_part(data: Any, kind: Any, *, subject: str, place: str = "") -> Any:
    """Plain data as an instance of a msgspec type.

    Raises InputError with the path of the field that is wrong; ``place`` is the path of the data in the file.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        field = (place + path.rstrip("`")).removeprefix(".")
        raise InputError(subject, problem[:1].lower() + problem[1:], place=field) from None
