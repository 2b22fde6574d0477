"""Strategies: how objects of a kind are defaulted, prepared and validated on create, update and delete."""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.formats.names import NameErrors, dns1123_subdomain_errors
from kubestow_devcluster.apiserver.field_errors import FieldError
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["ALL_CLIENT_METADATA", "RESTStrategy", "SpecStrategy"]

#: The metadata that clients set.
ALL_CLIENT_METADATA = ("labels", "annotations", "ownerReferences", "finalizers")


class RESTStrategy:
    """The default strategy, which suits most kinds; others override the hooks in which they differ.

    Hooks receive objects without ``kind`` and ``apiVersion``. They may modify the new object in place, never the old.
    """

    #: Whether ``metadata.generation`` counts changes to the spec.
    has_generation = False
    #: Whether PUT of a missing object creates it.
    allow_create_on_update = False
    #: Whether PUT may omit resourceVersion.
    allow_unconditional_update = True
    #: Whether the response to DELETE is the last state of the object instead of a Status.
    returns_deleted_object = False
    #: The propagation policy of a delete without one; empty: Background.
    default_propagation_policy = ""
    #: Fields of the metadata that a write of the status does not change, beside those that only the server sets.
    kept_by_status_writes: ClassVar[tuple[str, ...]] = ()
    #: Whether stored objects differ from those that this kind serves.
    needs_conversion = False

    def from_storage(self, stored: Object) -> Object:
        """Convert an object from its stored version to the served one."""
        return stored

    def to_storage(self, served: Object) -> Object:
        """Convert an object from the served version to the stored one."""
        return served

    def set_defaults(self, new: Object) -> None:
        """Set the fields that a client may omit."""

    def prepare_for_create(self, new: Object, now: str) -> None:
        """Clear the fields that clients cannot set, and set those that the server sets at ``now``."""

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        """Restore the fields that clients cannot change."""

    def warnings(self, new: Object) -> list[str]:
        """Warnings for the client that writes this object, which is not validated yet."""
        return []

    def validate(self, new: Object) -> list[FieldError]:
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return []

    def validate_status_update(self, new: Object, old: Object) -> list[FieldError]:
        return []

    def validate_subresource_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        """Validate an update through a subresource other than ``status``; by default like any update."""
        return self.validate_update(new, old)

    def validate_name(self, name: str) -> NameErrors:
        """The errors in a name."""
        return dns1123_subdomain_errors(name)

    def validate_delete(self, name: str) -> str:
        """Why the object of this name cannot be deleted, or the empty string."""
        return ""

    def graceful_deletion_period(self, old: Object, requested: int | None) -> int | None:
        """The grace period in seconds of a delete; None for kinds without graceful deletion."""
        return None


class SpecStrategy(RESTStrategy):
    """Kinds with a spec whose changes ``metadata.generation`` counts, and no other rules."""

    has_generation = True
