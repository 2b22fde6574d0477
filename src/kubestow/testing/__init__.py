"""Public tools for tests, of plugins and kubestow itself: builders with defaults, a checker of the contract."""
