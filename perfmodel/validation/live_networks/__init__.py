"""Networks that the live check measures: plain torch modules, one file per family, written as a user would.

The files import torch, so they are loaded only when a network is built; ``catalogue`` names them without it. The tests
compare the zoo with the same modules.
"""
