"""The shadow: decisions of the scheduler that runs, made again beside it from the same state, and compared."""
