"""Files: read whole within limits, in any of the encodings that people have, and written so that only their owner may
read them.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import stat
import sys
import zlib
from pathlib import Path
from typing import BinaryIO

from kubestow.errors import InputError

#: Bytes of a file that people write: a configuration, a kubeconfig, certificates.
MAX_FILE = 16 << 20
#: Bytes of a dump of a cluster, of a workload and of a record.
MAX_DUMP = 2 << 30
#: Bytes that any compressed file may expand to, and the factor by which a larger one may grow. Dumps grow by 10 to 60.
_MAX_EXPANDED, _MAX_RATIO = 256 << 20, 100
_CHUNK = 1 << 20
_GZIP = b"\x1f\x8b"


def read_file(path: Path, *, limit: int = MAX_FILE) -> bytes:
    """The content of a file or a pipe. Raises InputError if it cannot be read, or has more than ``limit`` bytes."""
    try:
        with path.open("rb") as stream:
            return _read(stream, str(path), limit)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def read_standard_input(*, limit: int = MAX_FILE) -> bytes:
    """All of standard input. Raises InputError like :func:`read_file`."""
    try:
        return _read(sys.stdin.buffer, "standard input", limit)
    except OSError as error:
        raise InputError("standard input", f"cannot be read: {error.strerror or error}") from None


def _read(stream: BinaryIO, subject: str, limit: int) -> bytes:
    try:
        status = os.fstat(stream.fileno())
    except OSError:  # standard input of a program that replaced it
        status = None
    too_large = InputError(subject, f"has more than {limit:,} bytes, the most that is read")
    if status is not None and stat.S_ISREG(status.st_mode) and status.st_size > limit:
        raise too_large
    is_device = status is not None and (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode))
    is_terminal = is_device and os.isatty(stream.fileno())
    chunks, size = [], 0
    while chunk := stream.read(_CHUNK):
        if is_device and not is_terminal:  # /dev/null has no content, other devices have no end
            raise InputError(subject, "is a device, expected a file or a pipe")
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise too_large
    return b"".join(chunks)


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
    limit = min(MAX_DUMP, max(_MAX_EXPANDED, _MAX_RATIO * len(content)))
    chunks, size = [], 0
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            while chunk := stream.read(_CHUNK):
                chunks.append(chunk)
                size += len(chunk)
                if size > limit:
                    problem = f"{len(content):,} bytes of compressed data expand to more than {limit:,}"
                    raise InputError(subject, problem)
        return b"".join(chunks)
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
