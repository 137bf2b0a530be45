"""Inception v3, which the live check times."""

from perfmodel.validation.live_networks.inception_v3 import inception_v3 as inception_v3
