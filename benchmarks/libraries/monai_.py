"""monai: networks and losses for medical images."""

import torch
from monai.losses import DiceCELoss, DiceLoss, FocalLoss, SSIMLoss, TverskyLoss
from monai.networks.layers import GaussianFilter
from monai.networks.nets import BasicUNet, SegResNet, SEResNet50, UNet

from .program import Programs, image, leaf

programs = Programs("monai")


def loss(function):
    return function, (leaf(2, 3, 8, 8), torch.randint(0, 3, (2, 1, 8, 8)))


@programs
def unet():
    return UNet(2, 1, 2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1), (image(channels=1),)


@programs
def basic_unet():
    return BasicUNet(2, 1, 2, features=(4, 4, 8, 8, 8, 4)), (image(channels=1),)


@programs
def residual_segmentation():
    return SegResNet(2, 4, 1, 2, blocks_down=(1, 1), blocks_up=(1,), norm=("GROUP", {"num_groups": 2})), (
        image(channels=1),
    )


@programs
def volumes():
    return UNet(3, 1, 2, channels=(4, 8), strides=(2,)), (torch.rand(1, 1, 8, 8, 8),)


@programs
def squeeze_and_excite():
    return SEResNet50(spatial_dims=2, in_channels=1, num_classes=3, layers=(1, 1, 1, 1)), (image(channels=1),)


@programs
def dice():
    return loss(DiceLoss(to_onehot_y=True, softmax=True))


@programs
def dice_and_cross_entropy():
    return loss(DiceCELoss(to_onehot_y=True, softmax=True))


@programs
def focal():
    return loss(FocalLoss(to_onehot_y=True))


@programs
def tversky():
    return loss(TverskyLoss(to_onehot_y=True, softmax=True))


@programs
def gaussian():
    return GaussianFilter(2, 1.5), (image(channels=1),)


@programs
def structural_similarity():
    return SSIMLoss(2, win_size=5), (leaf(1, 1, 12, 12), torch.rand(1, 1, 12, 12))
