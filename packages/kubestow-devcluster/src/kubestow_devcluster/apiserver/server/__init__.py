"""The server: ``api_server`` composes and runs it, ``http`` connects the API to aiohttp, ``tls`` is secure serving."""
