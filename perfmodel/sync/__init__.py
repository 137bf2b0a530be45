"""How workers agree on parameters: collective algorithms, what they cost on a fabric, and asynchronous schemes."""
