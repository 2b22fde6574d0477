"""What commands take in: clusters, schedulers, pods, and the options that name them."""
