"""The contract with plugins (statuses, extension points, events) and the runtime that asks them."""
