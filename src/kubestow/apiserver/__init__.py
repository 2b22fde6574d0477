"""The embedded API server: storage, watch, patches, and simulated nodes that run what is bound to them.

:class:`Server` is the way in. Below it, from the socket down: ``http`` (aiohttp), ``api`` (request to verb), ``verbs``
(what each verb does), ``registry`` (the rules every write passes), ``storage`` (objects and history), ``durability``
and ``database`` (the same on disk). Beside them: ``resources`` (the served kinds), ``schema`` (their fields),
``kubelets`` (simulated nodes).
"""

from kubestow.apiserver.database import Database
from kubestow.apiserver.server import AddressInUse, Server

__all__ = ["AddressInUse", "Database", "Server"]
