"""What a device keeps in memory, and the largest batch that fits."""
