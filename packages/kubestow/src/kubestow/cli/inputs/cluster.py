"""The cluster of the commands about one cluster: a dump, or the live one of a kubeconfig."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kubestow.cli.inputs.connection import CONNECTION_OPTIONS, Connection
from kubestow.cli.inputs.grouped import grouped_options
from kubestow.cli.output.input_summary import print_input

if TYPE_CHECKING:
    from kubestow.engine.input.cluster import Cluster

__all__ = ["ClusterInput", "cluster_options"]


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """The files of a cluster, or where a live one is."""

    clusters: tuple[str, ...]
    kubeconfig: str
    context: str
    master: str

    def read(self, *, strict: bool = False) -> Cluster:
        """The cluster; problems of the input are printed on standard error.

        Raises InputError, APIError and Unreachable.
        """
        from kubestow.cli.inputs.live_cluster import fetch_cluster
        from kubestow.engine.input.cluster import Cluster

        connection = Connection(self.kubeconfig, self.context, self.master)
        if self.clusters and connection.is_given:
            raise click.UsageError("--cluster excludes --kubeconfig, --context and --master")
        cluster = Cluster.load(*self.clusters, strict=strict) if self.clusters else fetch_cluster(connection)
        if cluster.summary.problems:
            print_input("cluster", cluster.summary)
        return cluster


#: Adds the options that say where the cluster is read from; the command gets them as ``source``.
cluster_options = grouped_options(
    "source",
    ClusterInput,
    (
        click.option("--cluster", "clusters", multiple=True, help="Dump or folder with the cluster; - is stdin."),
        *CONNECTION_OPTIONS,
    ),
)
