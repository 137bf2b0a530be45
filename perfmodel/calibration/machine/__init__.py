"""Measuring the machine at hand: small kernels, timed for about a minute, and constants fitted to their times."""
