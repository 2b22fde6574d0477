"""The decision pipeline alone, on clusters from files: no queue, no binding cycle, no API server."""
