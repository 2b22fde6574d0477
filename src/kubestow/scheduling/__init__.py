"""The scheduler: queue, scheduling cycle, binding cycle, event handlers. Worlds plug into :mod:`.ports`."""
