"""What changes in the cluster: events, the journal of recent ones, and the catalogs that write them."""
