"""``kubestow run``: schedule the pods of a cluster."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kubestow.scheduling.scheduler import Scheduler

__all__ = ["run"]


@click.command()
@click.option("--kubeconfig", default="", help="A kubeconfig file. Default: as kubectl finds it, or in-cluster.")
@click.option("--master", default="", help="Address of the API server; overrides the kubeconfig's.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A KubeSchedulerConfiguration file.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin to add to the registry; repeatable."
)
@click.option("--feature-gates", default="", help="Feature gates as Name=true,Other=false.")
@click.option("--seed", type=int, help="Seed of the choice among equally good nodes. Default: random.")
@click.option("-v", "--verbosity", default=0, show_default=True, help="0: warnings, 1: what happens, 2: everything.")
def run(
    kubeconfig: str,
    master: str,
    config_file: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str,
    seed: int | None,
    verbosity: int,
) -> None:
    """Schedule the pods of the cluster that a kubeconfig names, until interrupted.

    Of several schedulers that share a Lease (leaderElection in the configuration, on by default) the one that holds it
    schedules, the others stand by.
    """
    from kubestow.live import Live

    logging.basicConfig(
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[max(0, min(verbosity, 2))],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    live = Live.of(named=plugins, source=config_file, feature_gates=feature_gates, seed=seed)
    asyncio.run(live.run(kubeconfig=kubeconfig, master=master, on_ready=_tell_ready, on_leader=_tell_leader))
    click.echo("stopped")


def _tell_leader(identity: str) -> None:
    click.echo(f"{identity} leads")


def _tell_ready(scheduler: Scheduler) -> None:
    click.echo(f"scheduling {len(scheduler.cluster.nodes)} nodes for {', '.join(scheduler.profiles)}")
