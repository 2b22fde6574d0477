"""The served kinds and their rules.

``kind`` and ``strategy`` say what a kind is, ``built_in`` lists the built-in kinds, ``scheme`` finds a kind by its
names. ``strategies`` holds defaulting and validation of the built-in kinds, ``custom_resources`` those of custom
resources and their definitions, ``object_meta`` the validation of metadata.
"""

from kubestow_devcluster.apiserver.resources.built_in import BUILT_IN_KINDS, METRICS_GROUP, METRICS_KINDS
from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.resources.scheme import Scheme
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["BUILT_IN_KINDS", "METRICS_GROUP", "METRICS_KINDS", "Kind", "Object", "Scheme"]
