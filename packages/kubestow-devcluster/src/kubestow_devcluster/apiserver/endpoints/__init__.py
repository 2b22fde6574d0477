"""The endpoints of the API: what the server does with a request, from the path to the response, without a network.

``api_handler`` dispatches: it parses the path (``request_info``), finds the kind, and calls the handler of the verb in
``handlers`` with a ``request_scope``. ``response_encoder`` and ``tables`` encode objects in the negotiated form. Beside
the resources are ``discovery``, ``openapi``, ``health`` (with the version) and ``metrics``.
"""
