"""Tensors that exist before any input: parameters, constants, fresh memory."""
