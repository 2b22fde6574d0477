"""What the agent of a node reports in attributes: the fingerprint of its pods, and the zones of its containers.

The fingerprint says which pods a report accounts for. It is a hash of the pods' names, in no particular order, as
k8stopologyawareschedwg/podfingerprint computes it: XXH64 of the sorted XXH64 of the names, seeded with the XXH64 of
their namespaces. The zones are in the format of k8stopologyawareschedwg/numaplacement. Containers are numbered in the
order of their hashes. The attribute of a zone has the numbers of its containers, as differences in a code of 89
printable characters; the busiest zone has none, and runs the others. An attribute of the node has the number of
containers and the busiest zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology, zone_number

_PREFIX = "pfp0v001"
_MASK = (1 << 64) - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of pods, by namespace and name."""
    hashes = sorted(xxh64(name.encode(), xxh64(namespace.encode())) for namespace, name in pods)
    return f"{_PREFIX}{xxh64(b''.join(each.to_bytes(8, 'little') for each in hashes)):016x}"


def xxh64(data: bytes, seed: int = 0) -> int:
    """The XXH64 of some bytes (Cyan4973/xxHash, doc/xxhash_spec.md)."""
    position, size = 0, len(data)
    if size >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while position + 32 <= size:
            for lane in range(4):
                lanes[lane] = _round(lanes[lane], _word(data, position, 8))
                position += 8
        value = sum(_rotated(each, bits) for each, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for each in lanes:
            value = ((value ^ _round(0, each)) * _P1 + _P4) & _MASK
    else:
        value = (seed + _P5) & _MASK
    value = (value + size) & _MASK
    while position + 8 <= size:
        value = (_rotated(value ^ _round(0, _word(data, position, 8)), 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= size:
        value = (_rotated(value ^ (_word(data, position, 4) * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        value = _rotated(value ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _word(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size], "little")


Container = tuple[str, str, str]
"""Namespace, pod and name of a container."""

_METADATA = "topology.node.k8s.io/numaplacement-metadata"
_VECTOR = "topology.node.k8s.io/numaplacement-vector"
_NODE_PREFIX = "npv0v001::"
_ENCODING = "leb89"
_CHARACTERS = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\']
_DIGITS = {character: digit for digit, character in enumerate(_CHARACTERS)}
#: The first characters end a number, and the others continue it.
_ENDING = 64
_CONTINUING = len(_CHARACTERS) - _ENDING


def read_placements(topology: NodeResourceTopology, containers: Iterable[Container]) -> Mapping[Container, int]:
    """The zones of containers by number; empty unless the report is about exactly these containers."""
    metadata = next((each.value for each in topology.attributes if each.name == _METADATA), "")
    by_hash = {xxh64("\0".join(each).encode()): each for each in containers}
    ordered = [by_hash[each] for each in sorted(by_hash)]
    try:
        values = dict(pair.split("=", 1) for pair in metadata.removeprefix(_NODE_PREFIX).split("::"))
        count, busiest = int(values["cc"]), int(values["bn"])
        if not metadata.startswith(_NODE_PREFIX) or values["ve"] != _ENCODING or count != len(ordered):
            return {}
        found: dict[Container, int] = {}
        for zone in topology.zones:
            vector = next((each.value for each in zone.attributes if each.name == _VECTOR), "")
            for number in _numbers(vector):
                if ordered[number] in found:
                    return {}
                found[ordered[number]] = zone_number(zone.name)
    except (KeyError, ValueError, IndexError):
        return {}
    return {each: found.get(each, busiest) for each in ordered}


def _numbers(vector: str) -> Iterable[int]:
    """The numbers that a vector stands for. Raises KeyError for a character that is not of the code."""
    number = continued = 0
    is_continued = False
    for character in vector:
        digit = _DIGITS[character]
        if digit >= _ENDING:
            continued, is_continued = continued * _CONTINUING + digit - _ENDING, True
            continue
        number += digit if not is_continued else _ENDING + continued * _ENDING + digit
        continued, is_continued = 0, False
        yield number
