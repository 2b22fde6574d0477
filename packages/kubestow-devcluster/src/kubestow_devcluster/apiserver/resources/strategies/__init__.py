"""The strategies of built-in kinds, one module per API group or family of kinds."""
