"""The cluster of the commands about one cluster: a dump, or the live one of a kubeconfig."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.output.input_summary import print_input

if TYPE_CHECKING:
    from kubestow.simulation.input.cluster import Cluster

__all__ = ["cluster_options", "load_cluster"]


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where the cluster is read from."""
    for option in (
        click.option("--kubeconfig", default="", help="Kubeconfig of a live cluster, by default found as by kubectl."),
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
    ):
        command = option(command)
    return command


def load_cluster(clusters: tuple[str, ...], kubeconfig: str, *, strict: bool = False) -> Cluster:
    """Read the cluster that the options name. Raises InputError, APIError and Unreachable.

    Problems of the input are printed on standard error.
    """
    from kubestow.cli.options.live_cluster import fetch_cluster
    from kubestow.simulation.input.cluster import Cluster

    if clusters and kubeconfig:
        raise click.UsageError("--cluster and --kubeconfig exclude each other")
    cluster = Cluster.load(*clusters, strict=strict) if clusters else fetch_cluster(kubeconfig)
    if cluster.summary.problems:
        print_input("cluster", cluster.summary)
    return cluster
