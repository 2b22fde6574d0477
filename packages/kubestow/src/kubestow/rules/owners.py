"""Owners of objects, and the names that controllers and the API server generate."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import msgspec

Object = dict[str, Any]

#: The characters of generated suffixes and of hashes in names: no vowels, so no words (apimachinery's ``rand``).
NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
#: The length of the suffix that replaces the end of a ``generateName``.
SUFFIX_LENGTH = 5
_LONGEST_NAME = 63
_HASH_LENGTH = 10
#: Between the numbers of consecutive suffixes; coprime to the size of the alphabet, so no suffix recurs early.
_STRIDE = 6_700_417


def controller_reference(api_version: str, kind: str, *, name: str, uid: str) -> Object:
    """The owner reference that makes an object the managing controller of another one (``NewControllerRef``)."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def generated_name(generate_name: str, suffix: str) -> str:
    """The name of an object with this ``generateName``, cut so that the name fits a label (``SimpleNameGenerator``)."""
    return generate_name[: _LONGEST_NAME - SUFFIX_LENGTH] + suffix


def generated_suffix(seed: str, index: int = 0) -> str:
    """A suffix that looks generated, depends on its arguments alone, and is another one for each ``index``."""
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    number = (start + index * _STRIDE) % len(NAME_ALPHABET) ** SUFFIX_LENGTH
    digits = []
    for _ in range(SUFFIX_LENGTH):
        number, digit = divmod(number, len(NAME_ALPHABET))
        digits.append(NAME_ALPHABET[digit])
    return "".join(digits)


def template_hash(template: Object, taken: Collection[str] = ()) -> str:
    """A hash of a pod template, ten characters, that is not in ``taken``, as in the names of ReplicaSets and revisions.

    Kubernetes hashes a dump of its Go struct (``ComputeHash``), so its hash of a template is another one.
    """
    content = msgspec.json.encode(template, order="deterministic")
    for salt in range(len(taken) + 1):
        digest = hashlib.blake2b(content, digest_size=_HASH_LENGTH, salt=bytes([salt % 256])).digest()
        hash_ = "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest)
        if hash_ not in taken:
            return hash_
    raise AssertionError("there are more salts than taken hashes")
