"""Torch modules, recorded on fake tensors without running them, as programs and layer graphs."""
