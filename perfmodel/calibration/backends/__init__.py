"""What runs the kernels that are timed: a library behind one interface, with a table of benchmarks each."""
