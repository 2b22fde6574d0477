"""The clusters that a workload is run on: an API server over HTTP, or objects in memory for the engine alone."""
