"""Serialization: content negotiation of responses, and decoding of request bodies in JSON, YAML and protobuf."""
