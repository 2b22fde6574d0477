"""The scheduler of a command: its configuration, plugins and feature gates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.inputs.grouped import grouped_options

if TYPE_CHECKING:
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions

__all__ = ["SchedulerInput", "scheduler_options"]


@dataclass(frozen=True, slots=True)
class SchedulerInput:
    """The file of a configuration, references to plugins, and feature gates as text."""

    config: Path | str | None
    plugins: Sequence[str]
    feature_gates: str

    def read(self) -> SchedulerOptions:
        """Import the plugins and parse the gates; the configuration stays a file. Raises InputError."""
        from kubestow.config import FeatureGates
        from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
        from kubestow.plugins.registry import referenced_plugins

        return SchedulerOptions(self.config, referenced_plugins(self.plugins), FeatureGates.parse(self.feature_gates))


#: Adds the options that configure the scheduler; the command gets them as ``scheduler``.
scheduler_options = grouped_options(
    "scheduler",
    SchedulerInput,
    (
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="KubeSchedulerConfiguration."),
        click.option("--plugin", "plugins", multiple=True, help="A plugin, as module:Class or file.py:Class."),
        click.option("--feature-gates", "feature_gates", default="", help="Feature gates: Name=true,Other=false."),
    ),
)
