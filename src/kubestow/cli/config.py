"""``kubestow config``: check, show and convert KubeSchedulerConfiguration files offline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.config import ExtensionPoint, FeatureGates, Implements, KubeSchedulerConfiguration

__all__ = ["config"]

_PLUGINS = click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin to register; can be repeated."
)
_GATES = click.option("--feature-gates", default="", help="Feature gates, as Name=true,Other=false.")


@click.group()
def config() -> None:
    """Check, show and convert scheduler configurations, without access to a cluster."""


@config.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_PLUGINS
@_GATES
def check(files: tuple[str, ...], plugins: tuple[str, ...], feature_gates: str) -> int:
    """Validate configurations and print one line per error, as FILE:LINE: field: message.

    FILE can be "-" for standard input. The exit status is 1 if there are errors.
    """
    from kubestow import config as configuration
    from kubestow.config import legacy

    gates, implements = _gates_and_plugins(plugins, feature_gates)
    count = 0
    for file in files:
        source = _read(file)
        errors = configuration.check(source, gates=gates, implements=implements)
        for error in errors:
            location = f"{file}:{error.line}" if error.line else file
            text = f"{error.path}: {error.message}" if error.path else error.message
            click.echo(f"{location}: {text}")
        if errors and legacy.is_legacy(source):
            click.echo(
                f"{file}: convert it to {configuration.API_VERSION} with: kubestow config convert {file}", err=True
            )
        if not errors:
            click.echo(f"{file}: valid")
        count += len(errors)
    return int(count > 0)


@config.command("show")
@click.argument("file", required=False)
@click.option("--points", is_flag=True, help="Show the plugins of each extension point in call order.")
@_PLUGINS
@_GATES
def show(file: str | None, points: bool, plugins: tuple[str, ...], feature_gates: str) -> None:
    """Print the effective configuration of FILE, or the default one.

    Comments mark the differences from the default configuration.
    """
    from kubestow import config as configuration
    from kubestow.config.diff import annotated

    gates, implements = _gates_and_plugins(plugins, feature_gates)
    default = configuration.default_configuration(gates)
    effective = default
    if file is not None:
        effective = configuration.load(_read(file), subject=file, gates=gates, implements=implements)
    if points:
        click.echo(_points(effective, implements), nl=False)
    else:
        click.echo(annotated(configuration.render(effective), configuration.render(default)), nl=False)


@config.command("convert")
@click.argument("file")
@_PLUGINS
@_GATES
def convert(file: str, plugins: tuple[str, ...], feature_gates: str) -> None:
    """Convert a v1beta2 or v1beta3 configuration, or a scheduler Policy (also in a ConfigMap), to v1.

    Settings that are changed or omitted are listed on standard error. Settings without a v1 counterpart are errors.
    """
    import yaml

    from kubestow import config as configuration
    from kubestow.config import legacy

    gates, implements = _gates_and_plugins(plugins, feature_gates)
    conversion = legacy.convert(_read(file), subject=file)
    for warning in conversion.warnings:
        click.echo(f"{file}: {warning}", err=True)
    configuration.load(conversion.data, subject=f"{file}, converted", gates=gates, implements=implements)
    click.echo(yaml.safe_dump(conversion.data, sort_keys=False, allow_unicode=True), nl=False)


def _gates_and_plugins(plugins: tuple[str, ...], feature_gates: str) -> tuple[FeatureGates, Implements]:
    from kubestow.config import FeatureGates
    from kubestow.framework.profile import implements
    from kubestow.plugins.registry import find_plugins

    return FeatureGates.parse(feature_gates), implements(find_plugins(plugins))


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror}") from None


def _points(configuration: KubeSchedulerConfiguration, implements: Implements) -> str:
    """The plugins of each profile and extension point in call order, with the weights of scores."""
    from kubestow.config import expand

    lines = []
    for profile in configuration.profiles:
        lines.append(f"{profile.scheduler_name}:")
        expanded = expand(profile, implements)
        for point in _in_call_order():
            plugins = expanded[point]
            names = ", ".join(f"{plugin.name}({plugin.weight})" if point.scores else plugin.name for plugin in plugins)
            lines.append(f"  {point + ':':<19}{names or '-'}")
    return "\n".join(lines) + "\n"


def _in_call_order() -> tuple[ExtensionPoint, ...]:
    from kubestow.config import ExtensionPoint as Point

    before = (Point.PRE_ENQUEUE, Point.QUEUE_SORT, Point.PRE_FILTER, Point.FILTER, Point.POST_FILTER, Point.PRE_SCORE)
    after = (Point.SCORE, Point.RESERVE, Point.PERMIT, Point.PRE_BIND, Point.BIND, Point.POST_BIND)
    return (*before, *after, Point.PLACEMENT_GENERATE, Point.PLACEMENT_SCORE)
