"""The best layout of a job over many devices."""
