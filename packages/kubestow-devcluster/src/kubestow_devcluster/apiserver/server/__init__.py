"""The server: ``api_server`` composes it, ``http_handler`` connects the API to HTTP, ``pki`` has its certificates."""
