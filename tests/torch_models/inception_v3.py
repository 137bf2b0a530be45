"""Inception v3, which the live check times."""

from perfmodel.validation.live.modules import inception_v3 as inception_v3
