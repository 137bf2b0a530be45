"""Look-ups in tables, and positions."""
