"""Serialization: content negotiation, protobuf bodies, and the forms in which objects are returned."""
