"""``kubestow config``: check, show and convert KubeSchedulerConfiguration files offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from kubestow.cli.command_group import CommandGroup
from kubestow.cli.input.scheduler import (
    emulated_version_option,
    parse_gates,
    plugin_option,
    warn_of_gates_without_effect,
)
from kubestow.cli.output import MAX_MESSAGE, output_option, print_data
from kubestow.files import read_file, read_standard_input

if TYPE_CHECKING:
    from kubestow.config import FeatureGates, FieldError, Implements, KubeSchedulerConfiguration
    from kubestow.framework.profile import Registry
    from kubestow.rules.minors import Minor

_GATES = click.option("--feature-gates", default="", help="Feature gates, as Name=true,Other=false.")


#: Fields that are validated and have no effect (semantics 2.1).
_WITHOUT_EFFECT = (
    "parallelism",
    "clientConnection.contentType",
    "clientConnection.acceptContentTypes",
    "enableProfiling",
    "enableContentionProfiling",
)


@click.group(cls=CommandGroup)
def config() -> None:
    """Check, show and convert scheduler configurations, without access to a cluster."""


@config.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@plugin_option
@_GATES
@emulated_version_option
@output_option("text", "json", "yaml")
def check(
    files: tuple[str, ...], plugins: tuple[str, ...], feature_gates: str, emulated_version: str, output: str
) -> int:
    """Validate configurations and print all errors, as FILE:LINE:COLUMN: field: message.

    FILE is a configuration, or one of another scheduler, or a ConfigMap with one; "-" is standard input. All
    independent errors are reported, also those that kube-scheduler reports only when others are corrected. With
    --emulated-version they are those of that minor version, whose fields, plugins and feature gates are others. The
    exit status is 1 if there are errors. Settings without effect are remarks, on standard error.
    """
    from kubestow import config as configuration
    from kubestow.config import legacy
    from kubestow.plugins.configuration_file import diagnose_configuration
    from kubestow.plugins.registry import find_plugins
    from kubestow.reports.text import printable

    gates = parse_gates(feature_gates, emulated_version)
    warn_of_gates_without_effect(gates)
    registry = find_plugins(plugins, minor=gates.minor)
    found: dict[str, list[FieldError]] = {}
    for file in files:
        source = _read(file)
        errors = found[file] = diagnose_configuration(source, gates, registry)
        for error in errors if output == "text" else ():
            location = f"{file}:{error.line}:{error.column}" if error.line else file
            field = f"{error.path}: " if error.path else ""
            click.echo(printable(f"{location}: {field}{error.message}")[:MAX_MESSAGE])
        if errors and legacy.is_legacy(source):
            version = configuration.API_VERSION
            click.echo(f"{file}: convert it to {version} with: kubestow config convert {file}", err=True)
        for remark in () if errors else _remarks(source, gates, registry, plugins):
            location = f"{file}:{remark.line}:{remark.column}" if remark.line else file
            field = f"{remark.path}: " if remark.path else ""
            click.echo(printable(f"{location}: remark: {field}{remark.message}")[:MAX_MESSAGE], err=True)
        if not errors and output == "text":
            click.echo(f"{file}: valid")
    if output != "text":
        documents = ((file, [structs.asdict(error) for error in errors]) for file, errors in found.items())
        print_data([{"file": file, "errors": errors} for file, errors in documents], output)
    return int(any(found.values()))


def _remarks(source: bytes, gates: FeatureGates, registry: Registry, references: tuple[str, ...]) -> list[FieldError]:
    """What a valid configuration says without effect, and the plugins of the command line that it does not enable."""
    from kubestow import config as configuration
    from kubestow.plugins.configuration_file import convert_foreign, never_enabled, remarks
    from kubestow.plugins.registry import referenced_plugins

    foreign = convert_foreign(source, "")
    loaded = configuration.load(foreign or source, gates=gates)
    names = [plugin.name for plugin in referenced_plugins(references)]
    found = [] if foreign else list(remarks(source, loaded, registry, minor=gates.minor))
    for name in never_enabled(names, loaded, registry):
        found.append(configuration.FieldError("", f"no profile enables plugin {name}, so it is never called"))
    return found


@config.command("show")
@click.argument("file", required=False)
@click.option("--points", is_flag=True, help="Show the plugins of each extension point in call order.")
@plugin_option
@_GATES
@emulated_version_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json", "table"]),
    help="Output format. Default: yaml; with --points, table.",
)
def show(
    file: str | None,
    points: bool,
    plugins: tuple[str, ...],
    feature_gates: str,
    emulated_version: str,
    output: str | None,
) -> None:
    """Print the effective configuration of FILE, or the default one.

    Comments in YAML mark the differences from the default configuration of the same minor version. A scheduler that is
    run with the output as its configuration behaves exactly as with FILE.
    """
    from kubestow import config as configuration
    from kubestow.config.diff import annotated
    from kubestow.plugins.configuration_file import convert_foreign

    gates, implements = _gates_and_plugins(plugins, feature_gates, emulated_version)
    default = configuration.default_configuration(gates)
    effective = default
    if file is not None:
        source = _read(file)
        document = convert_foreign(source, file) or source
        effective = configuration.load(document, subject=file, gates=gates, implements=implements)
    if output == "table" and not points:
        raise click.UsageError("--output table requires --points")
    if points and output in (None, "table"):
        click.echo(_points_table(_points(effective, implements, gates.minor)), nl=False)
    elif points:
        print_data(_points(effective, implements, gates.minor), str(output))
    elif output == "json":
        print_data(configuration.render(effective), output)
    else:
        notes = dict.fromkeys(_WITHOUT_EFFECT, "no effect")
        click.echo(annotated(configuration.render(effective), configuration.render(default), notes), nl=False)


@config.command("convert")
@click.argument("file")
@plugin_option
@_GATES
@emulated_version_option
@output_option("yaml", "json")
def convert(file: str, plugins: tuple[str, ...], feature_gates: str, emulated_version: str, output: str) -> None:
    """Convert an older configuration (v1alpha1 to v1beta3), a scheduler Policy, or one of another scheduler, to v1.

    FILE can be a ConfigMap with one of these. A Policy file that a v1alpha1 configuration names is read.

    Settings that are changed or omitted are listed on standard error. Settings without a v1 counterpart are errors,
    and so are those that the minor version of --emulated-version does not accept.
    """
    from kubestow import config as configuration
    from kubestow.config import legacy
    from kubestow.plugins.configuration_file import convert_foreign

    gates, implements = _gates_and_plugins(plugins, feature_gates, emulated_version)
    source = _read(file)
    data = convert_foreign(source, file)
    if data is None:
        conversion = legacy.convert(source, subject=file, read_file=_read)
        for warning in conversion.warnings:
            click.echo(f"{file}: {warning}", err=True)
        data = conversion.data
    configuration.load(data, subject=f"{file}, converted", gates=gates, implements=implements)
    print_data(data, output)


def _gates_and_plugins(
    plugins: tuple[str, ...], feature_gates: str, emulated_version: str
) -> tuple[FeatureGates, Implements]:
    from kubestow.framework.profile import implements
    from kubestow.plugins.registry import find_plugins

    gates = parse_gates(feature_gates, emulated_version)
    warn_of_gates_without_effect(gates)
    return gates, implements(find_plugins(plugins, minor=gates.minor))


def _read(file: str) -> bytes:
    return read_standard_input() if file == "-" else read_file(Path(file))


def _points(
    configuration: KubeSchedulerConfiguration, implements: Implements, minor: Minor
) -> dict[str, dict[str, Any]]:
    """The plugins of each profile and extension point in call order, with the weights of scores.

    The extension points are those of the minor version.
    """
    from kubestow.config import ExtensionPoint, expand
    from kubestow.config.configuration import Plugins, extension_points

    fields = (field.encode_name for field in structs.fields(Plugins))
    known = extension_points(minor)
    in_call_order = [ExtensionPoint(name) for name in fields if name in known]
    points = {}
    for profile in configuration.profiles:
        expanded = expand(profile, implements)
        points[profile.scheduler_name] = {
            str(point): [
                {"name": plugin.name, "weight": plugin.weight} if point.scores else {"name": plugin.name}
                for plugin in expanded[point]
            ]
            for point in in_call_order
        }
    return points


def _points_table(points: dict[str, dict[str, Any]]) -> str:
    lines = []
    for profile, of_profile in points.items():
        lines.append(f"{profile}:")
        for point, plugins in of_profile.items():
            names = [
                f"{plugin['name']}({plugin['weight']})" if "weight" in plugin else plugin["name"] for plugin in plugins
            ]
            lines.append(f"  {point + ':':<19}{', '.join(names) or '-'}")
    return "\n".join(lines) + "\n"
