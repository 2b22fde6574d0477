"""Custom resources of plugins: objects of any kind that the API server serves, decoded into a struct of the plugin.

A plugin derives a struct from :class:`CustomObject` with the fields it reads and the name of the resource; registering
for events of the kind makes the scheduler watch it. The class name equals the kind. Fields can be structs or plain data
(``spec: dict[str, Any]``). If the API server does not serve the resource, there are no objects of the kind.
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.meta import APIObject, ObjectMeta


class CustomObject(APIObject, frozen=True):
    """The base of these structs. ``resource`` is ``<plural>.<version>.<group>``, with an empty group for core/v1."""

    resource: ClassVar[str] = ""
    #: Whether each object is about the node of its name. Its events then invalidate the results for this node, where
    #: they are registered for a row.
    is_about_node: ClassVar[bool] = False
    #: Whether an object in a file without a namespace is in the namespace default.
    is_namespaced: ClassVar[bool] = False

    metadata: ObjectMeta = ObjectMeta()

    @classmethod
    def address(cls) -> tuple[str, str]:
        """The API path of group and version (``/apis/<group>/<version>``), and the plural. Raises ValueError."""
        plural, _, rest = cls.resource.partition(".")
        version, dot, group = rest.partition(".")
        if not (plural and version and dot):
            raise ValueError(f'{cls.__name__}.resource is "{cls.resource}", expected "<plural>.<version>.<group>"')
        return (f"/apis/{group}/{version}" if group else f"/api/{version}"), plural

    @classmethod
    def api_type(cls) -> tuple[str, str]:
        """The apiVersion and kind of the objects. Raises ValueError as :meth:`address`."""
        prefix, _ = cls.address()
        return prefix.removeprefix("/apis/").removeprefix("/api/"), cls.__name__
