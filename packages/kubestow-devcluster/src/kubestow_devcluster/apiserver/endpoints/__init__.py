"""The endpoints of the API: what the server does with a request, from the path to the response, without a network.

``api_handler`` dispatches: it parses the path (``requests``), finds the kind, and calls the handler of the verb with a
``request_scope``: in ``reading_handlers``, ``watch_handler``, ``writing_handlers``, ``subresource_handlers`` or
``review_handlers``. ``response_encoder`` encodes objects in the negotiated form. Beside the resources are
``discovery``, ``openapi`` and ``health`` (with version and metrics).
"""
