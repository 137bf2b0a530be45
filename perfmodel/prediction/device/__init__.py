"""A processor with its software as plain numbers, and kernels to seconds."""
