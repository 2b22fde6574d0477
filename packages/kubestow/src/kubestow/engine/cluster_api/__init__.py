"""The cluster API of simulations: an API server in memory, and the controllers that answer it at once."""
