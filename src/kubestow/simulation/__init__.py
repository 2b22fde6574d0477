"""The same scheduler offline: recorded decisions replayed, clusters in memory under virtual time."""
