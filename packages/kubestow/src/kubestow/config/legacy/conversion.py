"""The result of a conversion, and the scoring strategies that replace several old plugins and arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubestow.config.field_errors import FieldError


class Conversion(NamedTuple):
    """The data of a v1 configuration; ``warnings`` list the settings that were changed or omitted."""

    data: dict[str, Any]
    warnings: tuple[FieldError, ...]


class ConversionError(Exception):
    """An old configuration has settings without a v1 counterpart, listed in ``errors``."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = errors
        super().__init__("; ".join(map(str, errors)))


STRATEGY_PLUGINS: Mapping[str, str] = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""The strategy that replaces a score plugin of v1beta1 and earlier."""

DEFAULT_SHAPE = ({"utilization": 0, "score": 10}, {"utilization": 100, "score": 0})
"""The shape of RequestedToCapacityRatioPriority without arguments: prefer unused nodes."""


class Strategies(NamedTuple):
    """Weights and arguments by strategy, of which at most one can stay."""

    weights: dict[str, int]
    args: dict[str, Mapping[str, Any]]

    def balance(self, path: str, names: tuple[str, str]) -> Iterator[FieldError]:
        """LeastAllocated and MostAllocated are opposites: keep the difference of their weights, with a warning."""
        least, most = self.weights.get("LeastAllocated", 0), self.weights.get("MostAllocated", 0)
        if least and most:
            text = f"{names[0]} ({least}) and {names[1]} ({most}) cancel each other out"
            yield FieldError(path, f"{text}: the difference of their weights is used")
            self.weights["LeastAllocated"] = max(least - most, 0)
            self.weights["MostAllocated"] = max(most - least, 0)

    def selected(self) -> dict[str, int]:
        """The strategies with a weight."""
        return {name: weight for name, weight in self.weights.items() if weight}

    def scoring_strategy(self, name: str) -> dict[str, Any]:
        """The argument ``scoringStrategy`` of NodeResourcesFit."""
        args = self.args.get(name, {})
        strategy: dict[str, Any] = {"type": name}
        if name == "RequestedToCapacityRatio":
            strategy["requestedToCapacityRatio"] = {"shape": args.get("shape", [])}
        return strategy | ({"resources": args["resources"]} if args.get("resources") not in (None, []) else {})
