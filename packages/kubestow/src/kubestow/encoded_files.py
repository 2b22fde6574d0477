"""The content of files as plain UTF-8: expanded if it is compressed, and without a byte order mark.

Dumps are large, so people keep them compressed with gzip; PowerShell's redirection writes UTF-16.
"""

from __future__ import annotations

import codecs
import gzip
import zlib

from kubestow.errors import InputError

__all__ = ["as_utf8"]

_GZIP = b"\x1f\x8b"


def as_utf8(content: bytes, subject: str) -> bytes:
    """The content of a file, which errors call ``subject``; its first bytes say how it is encoded, not its name.

    Raises InputError if it is damaged or truncated.
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
