"""The documentation site: pages from outside docs/, and reference pages generated from the code."""
