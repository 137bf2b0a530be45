"""Plain torch versions of published networks, with which tests compare: functions that return an nn.Module.

Written from the papers and in the manner of torchvision, knowing nothing of layers and graphs; those that the live
check times lie in ``perfmodel/validation/live/modules.py``. ``flop_count`` counts their products with torch's own
counter, on meta tensors.
"""
