"""``kubestow capacity``: how many more pods of a template fit, with cluster-capacity's flags and reports.

The console script ``cluster-capacity`` is the same with that program's conventions: it prints its version first, errors
to standard output, exits with 0 after them, and reads only the kinds of objects that cluster-capacity copies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kubestow.cli.ending import DropIn
from kubestow.cli.input.cluster import ClusterInput, cluster_options
from kubestow.cli.input.scheduler import SchedulerInput, emulated_version_option, plugin_option
from kubestow.cli.output import with_versions
from kubestow.errors import InputError, KubestowError
from kubestow.files import MAX_FILE, read_file, read_standard_input
from kubestow.version import KUBERNETES_VERSION, VERSION

if TYPE_CHECKING:
    from kubestow.engine.input.admission import Admission
    from kubestow_lab.capacity.pod_template import PodTemplate

_PARSE_ERROR = "Failed to parse pod spec file"
_URL_TIMEOUT = 30.0
_TIES = "Among nodes with equal scores, choose at random or the first by name."


@click.command()
@click.option(
    "--podspec",
    "--filename",
    "-f",
    "podspecs",
    multiple=True,
    help="Path or URL of a JSON or YAML file with the pod.",
)
@cluster_options
@click.option("--max-limit", default=0, type=click.IntRange(min=0), help="Stop after so many pods. 0: no limit.")
@click.option("--exclude-nodes", multiple=True, help="Nodes that must not be used, separated by commas.")
@click.option(
    "--default-config", "--config", "config", type=click.Path(path_type=Path), help="Scheduler configuration."
)
@plugin_option
@click.option("--feature-gates", "feature_gates", default="", help="Feature gates: Name=true,Other=false.")
@emulated_version_option
@click.option("--seed", default=0, show_default=True, help="Seed of the choice among nodes with equal scores.")
@click.option("--ties", type=click.Choice(["random", "name"]), default="random", show_default=True, help=_TIES)
@click.option("--strict", is_flag=True, help="Refuse input with any problem.")
@click.option(
    "--order",
    type=click.Choice(["round-robin", "sequence"]),
    default="round-robin",
    show_default=True,
    help="With several --podspec: they take turns, or one is placed until none fits before the next begins.",
)
@click.option("--preemption", is_flag=True, help="Evict pods of lower priority where an instance fits no node.")
@click.option(
    "--gang-size",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Place so many instances together or not at all.",
)
@click.option("--verbose", is_flag=True, help="Print requirements, reason and distribution.")
@click.option("-o", "--output", default="", help="json or yaml, as cluster-capacity's.")
@click.pass_obj
def capacity(
    drop_in: DropIn | None,
    podspecs: tuple[str, ...],
    source: ClusterInput,
    max_limit: int,
    exclude_nodes: tuple[str, ...],
    config: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str,
    emulated_version: str,
    seed: int,
    ties: str,
    strict: bool,
    order: str,
    preemption: bool,
    gang_size: int,
    verbose: bool,
    output: str,
) -> int:
    """Count how many more pods of a template fit into a cluster.

    The cluster is a dump, `kubectl get nodes,pods -A -o json`, or the live cluster of a kubeconfig. Pods are placed one
    after another until one fits no node. Several templates are placed in turn; with --preemption and --gang-size,
    pods of lower priority are evicted, and so many pods are placed together.
    """
    from kubestow.scheduling.decision.node_selection import FirstByName
    from kubestow_lab.capacity.capacity_report import document, mix_document, mix_text, text
    from kubestow_lab.capacity.estimate import COPIED_KINDS, CapacityOptions, estimate
    from kubestow_lab.capacity.mix import MixOptions, estimate_mix

    if not any(podspecs):
        raise click.UsageError("Pod spec file is missing")
    options = CapacityOptions(
        max_limit=max_limit,
        excluded_nodes=frozenset(name for names in exclude_nodes for name in names.split(",")),
        seed=seed,
        ties=FirstByName() if ties == "name" else None,
        kinds=None if drop_in is None else COPIED_KINDS,
    )
    manifests = [_manifest(podspec) for podspec in podspecs]
    strict_templates = [_template(*each) for each in manifests] if drop_in is not None else []
    scheduler_input = SchedulerInput(config, plugins, feature_gates, emulated_version)
    cluster = source.read(scheduler_input, strict=strict)
    templates = strict_templates or [_template(*each, cluster.admission) for each in manifests]
    scheduler = scheduler_input.read(cluster)
    configuration, registry, gates = scheduler.read_configuration(), scheduler.registry(), scheduler.gates
    # The drop-in prints what cluster-capacity does.
    name = (
        partial(with_versions, minor=gates.minor, server_version=cluster.server_version)
        if drop_in is None
        else lambda made: made
    )
    created = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    if len(templates) == 1 and not preemption and gang_size == 1:
        found = estimate(cluster, templates[0], configuration, registry=registry, gates=gates, options=options)
        _print(lambda: text(found, verbose=verbose), name(lambda: document(found, created)), output)
        return 0
    mix_options = MixOptions(options, order, preemption, gang_size)
    mix = estimate_mix(cluster, templates, configuration, registry=registry, gates=gates, options=mix_options)
    _print(lambda: mix_text(mix, verbose=verbose), name(lambda: mix_document(mix, created)), output)
    return 0


def cluster_capacity() -> None:
    """The console script ``cluster-capacity``."""
    click.echo(f"Cluster capacity version {{kubestow {VERSION}, Kubernetes {KUBERNETES_VERSION}}}")
    try:
        status = capacity.main(prog_name="cluster-capacity", standalone_mode=False, obj=DropIn())
    except click.UsageError as error:
        click.echo(error.format_message())
        if error.ctx is not None:
            click.echo(f"\n{error.ctx.get_help()}")
        status = 0
    except KubestowError as error:
        click.echo(str(error))
        status = 0
    sys.exit(status if isinstance(status, int) else 0)


def _manifest(podspec: str) -> tuple[str, Any]:
    """A file or URL, and the manifest of the pod in it. Raises InputError."""
    from kubestow.engine.input.documents import Problems, parse_objects

    found = list(parse_objects(_read(podspec), podspec, Problems(strict=True)))
    if len(found) != 1 or found[0].kind != "Pod":
        kinds = ", ".join(source.kind for source in found)
        raise InputError(_PARSE_ERROR, f"{podspec}: expected one Pod, got {kinds}")
    return podspec, found[0].manifest


def _template(podspec: str, manifest: Any, admission: Admission | None = None) -> PodTemplate:
    """The pod template of a manifest, which admission completes. Raises InputError."""
    from kubestow_lab.capacity.pod_template import PodTemplate

    try:
        return PodTemplate(manifest, podspec, admission)
    except InputError as error:
        raise InputError(_PARSE_ERROR, error.problem) from None


def _read(podspec: str) -> bytes:
    if not podspec.startswith(("http://", "https://")):
        return read_standard_input() if podspec == "-" else read_file(Path(podspec))
    from urllib.request import urlopen

    try:
        with urlopen(podspec, timeout=_URL_TIMEOUT) as response:
            content: bytes = response.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        raise InputError(podspec, f"cannot be read: {error}") from None
    if len(content) > MAX_FILE:
        raise InputError(podspec, f"has more than {MAX_FILE:,} bytes, the most that is read")
    return content


def _print(text: Callable[[], str], document: Callable[[], Any], output: str) -> None:
    """Print a report as text, JSON or YAML, as cluster-capacity does. Raises InputError for another form."""
    match output:
        case "":
            click.echo(text())
        case "json":
            click.echo(msgspec.json.encode(document()).decode())
        case "yaml":
            import yaml

            click.echo(str(yaml.safe_dump(document())).rstrip("\n"))
        case _:
            raise InputError("Error while printing", f'output format "{output}" not recognized')
