"""A real API server as a world: credentials, requests, list+watch, binds and patches, events."""
