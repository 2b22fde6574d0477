"""The endpoints of the API: what the server does with a request, from the path to the response, without a network.

``api_handler`` dispatches: it parses the path (``requests``), finds the kind, and calls the handler of the verb with a
``request_scope``, which encodes objects in the negotiated form: in ``reading_handlers``, ``writing_handlers`` or
``subresource_handlers``. Beside the resources are ``discovery`` (with version, health and metrics) and ``openapi``.
"""
