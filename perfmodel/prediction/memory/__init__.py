"""Memory that a device needs, and the largest batch that fits."""
