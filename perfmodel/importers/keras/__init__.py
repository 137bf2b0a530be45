"""Keras models as layer graphs: configurations are read as data, weights and code never."""
