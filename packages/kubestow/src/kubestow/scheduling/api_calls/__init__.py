"""Writes to the API server: one dispatcher orders, merges and retries them."""
