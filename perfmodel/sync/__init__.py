"""How workers agree: collective algorithms, and what they cost on a fabric."""
