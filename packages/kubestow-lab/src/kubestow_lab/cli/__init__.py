"""The commands of the laboratory; the entry points of the distribution name them."""
