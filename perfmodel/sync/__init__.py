"""How workers agree on parameters."""
