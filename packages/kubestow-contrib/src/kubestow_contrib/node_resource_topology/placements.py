"""In which NUMA zone each container runs that has resources for itself, as an agent reports it.

The format is that of k8stopologyawareschedwg/numaplacement. Containers are numbered in the order of their hashes. The
attribute of a zone has the numbers of its containers, as differences in a code of 89 printable characters; the busiest
zone has none, and runs the others. An attribute of the node has the number of containers and the busiest zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kubestow_contrib.node_resource_topology.fingerprint import xxh64
from kubestow_contrib.node_resource_topology.topologies import NodeResourceTopology, zone_number

__all__ = ["Container", "read_placements"]

Container = tuple[str, str, str]
"""Namespace, pod and name of a container."""

_METADATA = "topology.node.k8s.io/numaplacement-metadata"
_VECTOR = "topology.node.k8s.io/numaplacement-vector"
_PREFIX = "npv0v001::"
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
        values = dict(pair.split("=", 1) for pair in metadata.removeprefix(_PREFIX).split("::"))
        count, busiest = int(values["cc"]), int(values["bn"])
        if not metadata.startswith(_PREFIX) or values["ve"] != _ENCODING or count != len(ordered):
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
