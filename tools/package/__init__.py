"""Building the distribution."""
