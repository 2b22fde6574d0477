"""Kinds that plugins bring along: whatever an API server serves, read into a struct of the plugin's own.

A plugin derives a struct from :class:`CustomObject`, with the fields it reads and the name of the resource; its
interest in the kind is enough for the scheduler to watch it. Fields may be structs, or plain data
(``spec: dict[str, Any]``). The struct is called like the kind is in the API. An API server that does not serve the
resource has no such objects.
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.meta import APIObject, ObjectMeta

__all__ = ["CustomObject"]


class CustomObject(APIObject, frozen=True):
    """The base of such structs. ``resource`` is ``<plural>.<version>.<group>``, with an empty group for core kinds."""

    resource: ClassVar[str] = ""

    metadata: ObjectMeta = ObjectMeta()

    @classmethod
    def address(cls) -> tuple[str, str]:
        """Where the API serves them: the path of group and version, and the plural. Raises ValueError."""
        plural, _, rest = cls.resource.partition(".")
        version, dot, group = rest.partition(".")
        if not (plural and version and dot):
            raise ValueError(f'{cls.__name__}.resource is "{cls.resource}", expected "<plural>.<version>.<group>"')
        return (f"/apis/{group}/{version}" if group else f"/api/{version}"), plural
