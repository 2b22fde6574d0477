"""The scheduler that a command decides with: its options, and the reading of its configuration, plugins and gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kubestow.cli.command_group import grouped_options
from kubestow.errors import InputError
from kubestow.rules.minors import DEFAULT_MINOR, MINORS, NOT_COMPARED, Minor

if TYPE_CHECKING:
    from kubestow.api.custom import CustomObject
    from kubestow.config import FeatureGates
    from kubestow.engine.input.cluster_objects import ClusterObjects
    from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions

_Built = TypeVar("_Built")


@dataclass(frozen=True, slots=True)
class SchedulerInput:
    """The file of a configuration, references to plugins, feature gates as text, and the emulated minor version."""

    config: Path | str | None
    plugins: Sequence[str]
    feature_gates: str
    emulated_version: str = ""

    @property
    def configuration(self) -> Path | str | Mapping[str, Any] | None:
        """The file of the configuration, or its plain data."""
        return self.config

    def read(self, cluster: ClusterObjects | None = None) -> SchedulerOptions:
        """Import the plugins and parse the gates; the configuration stays a file. Raises InputError.

        Without ``--emulated-version``, the minor version is that of the ``cluster``, or the newest if it tells none.
        Gates without effect are named on standard error.
        """
        options = self._options(self.minor(cluster))
        warn_of_gates_without_effect(options.gates)
        return options

    def read_for_server(self) -> SchedulerOptions:
        """The same before an API server is asked for its version, which the gates have to suit then.

        Without ``--emulated-version``, they are those of the first minor version in which they are valid.
        """
        return self.read() if self.emulated_version else newest_valid(self._options)

    def custom_paths(self) -> dict[str, str]:
        """The API paths of :meth:`custom_kinds`, each with the names of the plugins. Raises as it does."""
        return {"/".join(kind.address()): names for kind, names in self.custom_kinds().items()}

    def custom_kinds(self) -> dict[type[CustomObject], str]:
        """The custom kinds that plugins of the configuration read, each with their names.

        The minor version is that of ``--emulated-version``, or else the newest for which the configuration is valid.
        Raises InputError and PluginError.
        """
        from kubestow.engine.input.cluster_objects import ClusterObjects
        from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, custom_kinds

        def build(minor: Minor) -> dict[type[CustomObject], str]:
            return custom_kinds(OfflineScheduler(ClusterObjects(), self._options(minor)).profiles.values())

        return build(parse_minor(self.emulated_version)) if self.emulated_version else newest_valid(build)

    def _options(self, minor: Minor) -> SchedulerOptions:
        from kubestow.config import FeatureGates
        from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
        from kubestow.plugins.registry import referenced_plugins

        gates = FeatureGates.parse(self.feature_gates, minor=minor)
        return SchedulerOptions(self.configuration, referenced_plugins(self.plugins), gates, self.emulated_version)

    def minor(self, cluster: ClusterObjects | None) -> Minor:
        """The minor version to decide as; what has to be said of it is printed on standard error. Raises InputError."""
        from kubestow.engine.input.cluster_version import version_of

        if self.emulated_version or cluster is None:
            given = parse_minor(self.emulated_version)
            if not given.is_compared:
                click.echo(f"kubernetes: {NOT_COMPARED}", err=True)
            return given
        found = version_of(cluster)
        if found.reason:
            click.echo(f"kubernetes: {found}", err=True)
        if found.warning:
            click.echo(f"kubernetes: warning: {found.warning}", err=True)
        return found.minor


def parse_minor(emulated_version: str) -> Minor:
    """The minor version of ``--emulated-version``: "1.33" or "kube=1.33"; "" is the default. Raises InputError."""
    return Minor.emulated(emulated_version, subject="--emulated-version") if emulated_version else DEFAULT_MINOR


def newest_valid(build: Callable[[Minor], _Built]) -> _Built:
    """What is built for the default minor version or, if the input is invalid there, the newest one that accepts it.

    It validates input before an API server is asked for its version. Raises the InputError of the default version if
    there is none.
    """
    problems = []
    for minor in (DEFAULT_MINOR, *reversed(MINORS)):
        try:
            return build(minor)
        except InputError as error:
            problems.append(error)
    raise problems[0]


def parse_gates(feature_gates: str, emulated_version: str) -> FeatureGates:
    """The gates of ``--feature-gates`` in the minor version of ``--emulated-version``. Raises InputError."""
    from kubestow.config import FeatureGates

    return FeatureGates.parse(feature_gates, minor=parse_minor(emulated_version))


def warn_of_gates_without_effect(gates: FeatureGates) -> None:
    """Print once which gates were enabled although what they enable is not implemented, if there are any."""
    context, names = click.get_current_context(silent=True), ", ".join(gates.without_effect)
    printed = set[str]() if context is None else context.find_root().meta.setdefault(_PRINTED_GATES, set())
    if names and names not in printed:
        printed.add(names)
        click.echo(f"--feature-gates: warning: enabled but not implemented, so they have no effect: {names}", err=True)


_PRINTED_GATES = "kubestow.gates_without_effect"


#: Adds ``--emulated-version`` to a command whose cluster tells a version.
emulated_version_option = click.option(
    "--emulated-version",
    default="",
    metavar="VERSION",
    help="Kubernetes minor to decide as, such as 1.33. Default: the cluster's, by its API server or newest kubelet. "
    f"{NOT_COMPARED}.",
)

#: How a plugin is named on the command line.
PLUGIN = "module:Class or file.py:Class"

#: Adds ``--plugin`` to a command, which gets the references as ``plugins``.
plugin_option = click.option(
    "--plugin",
    "plugins",
    multiple=True,
    metavar="MODULE:CLASS",
    help=f"Plugin to register, as {PLUGIN}; can be repeated.",
)

#: Adds the options that configure the scheduler; the command gets them as ``scheduler``.
scheduler_options = grouped_options(
    "scheduler",
    SchedulerInput,
    (
        click.option("--config", type=click.Path(path_type=Path, dir_okay=False), help="KubeSchedulerConfiguration."),
        plugin_option,
        click.option("--feature-gates", "feature_gates", default="", help="Feature gates: Name=true,Other=false."),
        emulated_version_option,
    ),
)
