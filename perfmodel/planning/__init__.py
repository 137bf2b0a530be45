"""What would change: reports that set predictions side by side."""
