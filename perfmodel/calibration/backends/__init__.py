"""Libraries that run the timed kernels, behind one interface, each with a table of benchmarks."""
