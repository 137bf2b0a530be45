"""A processor and its software as plain numbers, and the time of kernels on it."""
