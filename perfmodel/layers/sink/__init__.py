"""Where tensors leave a graph."""
