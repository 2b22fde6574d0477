"""The embedded API server: kube-apiserver's API on an in-memory store, without etcd.

A request passes ``server`` (HTTP and TLS), ``security`` (authentication, authorization), ``endpoints`` (dispatch,
handlers, responses) and, if it writes, ``registry`` (admission, strategies) on its way to ``storage`` (objects,
resourceVersions, watch history).
``resources`` lists the served kinds with their strategies, ``kinds`` what a kind is, ``schema`` their fields,
``printers`` their columns. ``managed_fields`` holds the ownership of fields and server-side apply, ``serialization``
negotiation and decoding. ``statuses`` makes all error responses.
"""
