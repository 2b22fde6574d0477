"""How a simulation is run: its seed, its end, and what it chooses among equals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

__all__ = ["simulation_options"]


def simulation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how a simulation is run."""
    for option in (
        click.option("--until", type=click.FloatRange(min=0), help="End of the simulation, in virtual seconds."),
        click.option("--departures/--no-departures", default=True, show_default=True, help="Whether pods end."),
        click.option(
            "--ties",
            type=click.Choice(["random", "name"]),
            default="random",
            show_default=True,
            help="Among nodes with equal scores, choose at random or the first by name.",
        ),
        click.option("--seed", default=0, show_default=True, help="Seed of all random choices."),
    ):
        command = option(command)
    return command
