"""The content of a file is expanded and decoded by what it is, not by its name; damage is named."""

from __future__ import annotations

import codecs
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.errors import InputError
from kubestow.files import as_utf8

TEXT = '{"kind": "List", "name": "héllo"}\r\n'
COMPRESSED = gzip.compress(TEXT.encode(), mtime=0)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_text_is_utf_8_however_it_was_encoded(encoding: str, compress: type[bytes]) -> None:
    assert as_utf8(compress(TEXT.encode(encoding)), "dump") == TEXT.encode()


@given(st.lists(st.text(max_size=50), min_size=1))
def test_compressed_files_one_after_the_other_are_one(parts: list[str]) -> None:
    together = b"".join(gzip.compress(part.encode()) for part in parts)
    assert as_utf8(together, "dump") == "".join(parts).encode().removeprefix(codecs.BOM_UTF8)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (COMPRESSED[:-9], "the compressed data ends early: the file is truncated"),
        (COMPRESSED[:5], "the compressed data ends early: the file is truncated"),
        (COMPRESSED[:-8] + bytes(8), "damaged gzip data: CRC check failed"),
        (COMPRESSED + b"junk", "damaged gzip data: Not a gzipped file"),
        (b"\x1f\x8b\x08\x00" + bytes(6) + b"\xff" * 20, "damaged gzip data: Error -3"),
        (b"\xff\xfe{", "not UTF-16 text, which its byte order mark announces"),
    ],
    ids=["end cut off", "header cut off", "other checksum", "other data behind", "no deflate data", "half a character"],
)
def test_damage_is_named_with_the_file(content: bytes, problem: str) -> None:
    with pytest.raises(InputError) as refused:
        as_utf8(content, "dump.json.gz")
    assert str(refused.value).startswith(f"dump.json.gz: {problem}")
