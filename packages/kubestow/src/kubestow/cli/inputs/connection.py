"""The API server of the commands that use a live cluster: ``--kubeconfig``, ``--context`` and ``--master``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kubestow.cli.inputs.grouped import grouped_options

if TYPE_CHECKING:
    from kubestow.client.rest.credentials import Credentials

__all__ = ["CONNECTION_OPTIONS", "Connection", "connection_options"]


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a live cluster is; what is empty is found as by kubectl."""

    kubeconfig: str = ""
    context: str = ""
    master: str = ""

    @property
    def is_given(self) -> bool:
        """Whether any of the options is given."""
        return bool(self.kubeconfig or self.context or self.master)

    def __str__(self) -> str:
        return self.kubeconfig or self.master or "the cluster"

    async def credentials(self) -> Credentials:
        """The credentials for the API server. Raises InputError."""
        from kubestow.client.rest.credentials import load_credentials

        return await load_credentials(self.kubeconfig, context=self.context, master=self.master)


CONNECTION_OPTIONS = (
    click.option("--kubeconfig", default="", metavar="FILE", help="Kubeconfig of the cluster. Default: as kubectl."),
    click.option("--context", default="", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
    click.option("--master", default="", metavar="URL", help="URL of the API server; overrides the kubeconfig."),
)

#: Adds the options of a connection; the command gets them as ``connection``.
connection_options = grouped_options("connection", Connection, CONNECTION_OPTIONS)
