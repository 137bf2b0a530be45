"""The list of all published networks; read at run time too, by ``__init__.py``."""

from collections.abc import Callable, Mapping
from typing import Any

from perfmodel.graph import LayerGraph
from perfmodel.zoo.adversarial import dcgan_discriminator as dcgan_discriminator
from perfmodel.zoo.adversarial import dcgan_generator as dcgan_generator
from perfmodel.zoo.adversarial import generative_adversarial_network as generative_adversarial_network
from perfmodel.zoo.autoencoders import autoencoder as autoencoder
from perfmodel.zoo.autoencoders import convolutional_autoencoder as convolutional_autoencoder
from perfmodel.zoo.autoencoders import deep_belief_network as deep_belief_network
from perfmodel.zoo.autoencoders import restricted_boltzmann_machine as restricted_boltzmann_machine
from perfmodel.zoo.autoencoders import variational_autoencoder as variational_autoencoder
from perfmodel.zoo.encoders import bert as bert
from perfmodel.zoo.encoders import vit as vit
from perfmodel.zoo.fully_connected import fcn5 as fcn5
from perfmodel.zoo.fully_connected import fcn8 as fcn8
from perfmodel.zoo.fully_connected import feed_forward as feed_forward
from perfmodel.zoo.fully_connected import mnist_classifier as mnist_classifier
from perfmodel.zoo.image_classifiers import alexnet as alexnet
from perfmodel.zoo.image_classifiers import convolutional as convolutional
from perfmodel.zoo.image_classifiers import lenet5 as lenet5
from perfmodel.zoo.image_classifiers import nin as nin
from perfmodel.zoo.image_classifiers import vgg11 as vgg11
from perfmodel.zoo.image_classifiers import vgg13 as vgg13
from perfmodel.zoo.image_classifiers import vgg16 as vgg16
from perfmodel.zoo.image_classifiers import vgg19 as vgg19
from perfmodel.zoo.inception import googlenet as googlenet
from perfmodel.zoo.inception import inception_v3 as inception_v3
from perfmodel.zoo.maps_from_maps import deconvolutional as deconvolutional
from perfmodel.zoo.maps_from_maps import unet as unet
from perfmodel.zoo.mixtures import deepseek as deepseek
from perfmodel.zoo.mixtures import mixtral as mixtral
from perfmodel.zoo.recurrent import lstm32 as lstm32
from perfmodel.zoo.recurrent import lstm64 as lstm64
from perfmodel.zoo.recurrent import lstm_classifier as lstm_classifier
from perfmodel.zoo.recurrent import recurrent_network as recurrent_network
from perfmodel.zoo.recurrent import recursive_network as recursive_network
from perfmodel.zoo.recurrent import seq2seq as seq2seq
from perfmodel.zoo.resnet import densenet121 as densenet121
from perfmodel.zoo.resnet import mobilenet_v2 as mobilenet_v2
from perfmodel.zoo.resnet import resnet18 as resnet18
from perfmodel.zoo.resnet import resnet34 as resnet34
from perfmodel.zoo.resnet import resnet50 as resnet50
from perfmodel.zoo.resnet import resnet101 as resnet101
from perfmodel.zoo.resnet import resnet152 as resnet152
from perfmodel.zoo.resnet import resnet200 as resnet200
from perfmodel.zoo.transformer import gpt as gpt
from perfmodel.zoo.transformer import gpt2 as gpt2
from perfmodel.zoo.transformer import llama as llama

BUILDERS: Mapping[str, Callable[..., LayerGraph]]

def names() -> tuple[str, ...]: ...
def build(name: str, /, **options: Any) -> LayerGraph: ...
