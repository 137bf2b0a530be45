"""What would change: predictions side by side."""
