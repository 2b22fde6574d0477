"""Files that only their owner may read: private keys and kubeconfigs."""

from __future__ import annotations

import os
from pathlib import Path

from kubestow.errors import InputError

__all__ = ["write_private"]


def write_private(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, atomically. Raises InputError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)  # of a process that was killed, or of someone who waits for the content
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from None
