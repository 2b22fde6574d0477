"""The scheduler of a command: its configuration, plugins and feature gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kubestow.framework.interface import Plugin

__all__ = ["plugin_classes", "scheduler_options"]


def scheduler_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that configure the scheduler."""
    for option in (
        click.option("--feature-gates", "feature_gates", default="", help="Feature gates: Name=true,Other=false."),
        click.option("--plugin", "plugins", multiple=True, help="A plugin, as module:Class or file.py:Class."),
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="KubeSchedulerConfiguration."),
    ):
        command = option(command)
    return command


def plugin_classes(references: tuple[str, ...]) -> list[type[Plugin]]:
    """The plugin classes named ``module:Class`` or ``file.py:Class``. Raises InputError."""
    from kubestow.plugins.registry import referenced_plugins

    return referenced_plugins(references)
