"""Protocols: the cells that are fitted before the others are scored."""
