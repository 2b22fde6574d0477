"""Storage: objects by key with their resource versions and history, in memory and on disk."""
