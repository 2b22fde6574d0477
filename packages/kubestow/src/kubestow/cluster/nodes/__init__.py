"""The node table: one contiguous column per property of nodes, and views of its rows."""
