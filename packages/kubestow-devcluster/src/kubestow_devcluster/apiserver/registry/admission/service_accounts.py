"""ServiceAccount: pods run as a service account of their namespace, ``default`` unless they name one.

Unlike with kube-apiserver, pods get no volume with a token: no process would read it, and it would make every pod half
as large again. ``kubectl create token`` issues tokens.
"""

from __future__ import annotations

from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.admission.rejection import forbidden
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import Store

__all__ = ["DEFAULT_ACCOUNT", "ServiceAccounts"]

DEFAULT_ACCOUNT = "default"


class ServiceAccounts:
    def __init__(self, store: Store) -> None:
        self._accounts = store.collection("serviceaccounts")

    def admit(self, kind: Kind, new: Object) -> None:
        """Raises a 403 StatusError for an account that does not exist.

        The default account is not checked: kube-apiserver waits for it, because its controller creates it soon after
        the namespace.
        """
        spec, namespace = new["spec"], new["metadata"]["namespace"]
        name = spec.get("serviceAccountName") or DEFAULT_ACCOUNT
        if name != DEFAULT_ACCOUNT and self._accounts.get(f"{namespace}/{name}") is None:
            problem = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
            raise forbidden(kind, new, problem)
        spec["serviceAccountName"] = spec["serviceAccount"] = name
