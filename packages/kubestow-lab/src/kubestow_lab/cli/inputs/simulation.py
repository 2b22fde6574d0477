"""How a simulation is run: its seed, its end, and what it chooses among equals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.inputs.grouped import grouped_options

if TYPE_CHECKING:
    from kubestow_lab.simulation.simulation import SimulationOptions

__all__ = ["SimulationInput", "simulation_options"]


@dataclass(frozen=True, slots=True)
class SimulationInput:
    """The options of a simulation, as :class:`~kubestow_lab.simulation.simulation.SimulationOptions` has them."""

    seed: int
    ties: str
    departures: bool
    until: float | None

    def options(self) -> SimulationOptions:
        """The options, with the defaults of all that have no option on the command line."""
        from kubestow_lab.simulation.simulation import SimulationOptions

        return SimulationOptions(**asdict(self))


def simulation_options(*, departures: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that say how a simulation is run; the command gets them as ``simulation``.

    ``departures`` is the default of the option with that name.
    """
    return grouped_options(
        "simulation",
        SimulationInput,
        (
            click.option("--seed", default=0, show_default=True, help="Seed of all random choices."),
            click.option(
                "--ties",
                type=click.Choice(["random", "name"]),
                default="random",
                show_default=True,
                help="Among nodes with equal scores, choose at random or the first by name.",
            ),
            click.option(
                "--departures/--no-departures", default=departures, show_default=True, help="Whether pods end."
            ),
            click.option("--until", type=click.FloatRange(min=0), help="End of the simulation, in virtual seconds."),
        ),
    )
