"""Vision transformers, which the live check times, in a published size."""

from perfmodel.validation.live.modules import VisionTransformer


def vit_b_16():
    return VisionTransformer(patch_size=16, layers=12, heads=12, width=768, hidden=3072)
