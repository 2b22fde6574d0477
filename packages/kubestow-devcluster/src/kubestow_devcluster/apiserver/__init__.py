"""The embedded API server: kube-apiserver's API on an in-memory store, without etcd.

A request passes ``server`` (HTTP and TLS), ``authentication``, ``authorization``, ``endpoints`` (dispatch, handlers,
responses) and, if it writes, ``registry`` (admission, strategies) on its way to ``storage`` (objects, resourceVersions,
watch history).
``resources`` lists the served kinds with their strategies, ``schema`` their fields, ``printers`` their columns.
``patches`` holds the four patch types, ``managed_fields`` the ownership of fields, ``serialization`` negotiation and
decoding, ``selectors`` label and field selectors. ``statuses`` and ``field_errors`` make all error responses.
"""
