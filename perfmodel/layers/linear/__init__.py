"""Products with weights or of two activations."""
