"""The pod of the commands about one pod: ``POD``, as NAMESPACE/NAME or with ``--namespace``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from kubestow.cli.inputs.grouped import grouped_options

__all__ = ["PodName", "pod_argument"]

_DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class PodName:
    """A pod as it was given."""

    name: str
    namespace: str

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name. Raises UsageError for two different namespaces."""
        namespace, _, name = self.name.rpartition("/")
        if namespace and self.namespace and namespace != self.namespace:
            raise click.UsageError(f"the namespace is {namespace} in {self.name}, and {self.namespace} in --namespace")
        return namespace or self.namespace or _DEFAULT_NAMESPACE, name

    def __str__(self) -> str:
        return "/".join(self.key)


#: Adds the argument POD and ``--namespace``; the command gets them as ``pod``.
pod_argument = grouped_options(
    "pod",
    PodName,
    (
        click.argument("name", metavar="POD"),
        click.option("-n", "--namespace", default="", metavar="NAME", help="Namespace of POD.  [default: default]"),
    ),
)
