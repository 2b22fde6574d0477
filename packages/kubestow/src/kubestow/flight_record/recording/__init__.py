"""Recording: the interfaces and the event loop of a scheduler whose environment is recorded, and the journal."""
