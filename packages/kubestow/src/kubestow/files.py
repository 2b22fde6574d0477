"""Files: read whole, in any of the encodings that people have, and written so that only their owner may read them."""

from __future__ import annotations

import codecs
import gzip
import os
import zlib
from pathlib import Path

from kubestow.errors import InputError

_GZIP = b"\x1f\x8b"


def read_file(path: Path) -> bytes:
    """The content of a file. Raises InputError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def as_utf8(content: bytes, subject: str) -> bytes:
    """The content of a file as plain UTF-8: expanded if it is compressed, and without a byte order mark.

    Its first bytes say how it is encoded, not its name: dumps are large, so people keep them compressed with gzip;
    PowerShell's redirection writes UTF-16. ``subject`` names the file in errors. Raises InputError if it is damaged or
    truncated.
    """
    if content.startswith(_GZIP):
        content = _expanded(content, subject)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return content.decode("utf-16").encode()
        except UnicodeDecodeError:
            raise InputError(subject, "not UTF-16 text, which its byte order mark announces") from None
    return content.removeprefix(codecs.BOM_UTF8)


def _expanded(content: bytes, subject: str) -> bytes:
    try:
        return gzip.decompress(content)
    except EOFError:
        raise InputError(subject, "the compressed data ends early: the file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(subject, f"damaged gzip data: {error}") from None


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
