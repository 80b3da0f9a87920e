"""segmentation-models-pytorch: architectures and losses."""

import segmentation_models_pytorch as smp
import torch

from .program import Programs, image, leaf

programs = Programs("segmentation-models-pytorch")


def network(architecture, **options):
    model = smp.create_model(architecture, encoder_name="resnet18", encoder_weights=None, classes=3, **options)
    return model, (image(size=64),)


def losses(loss):
    return loss, (leaf(2, 3, 8, 8), torch.randint(0, 3, (2, 8, 8)))


@programs
def unet():
    return network("unet")


@programs
def unet_plus_plus():
    return network("unetplusplus")


@programs
def feature_pyramid():
    return network("fpn")


@programs
def deeplab():
    return network("deeplabv3plus")


@programs
def pyramid_pooling():
    return network("pspnet")


@programs
def link_net():
    return network("linknet")


@programs
def attention():
    return network("manet")


@programs
def unet_with_class():
    return network("unet", aux_params={"classes": 4, "dropout": 0.2}, decoder_attention_type="scse")


@programs
def dice():
    return losses(smp.losses.DiceLoss("multiclass"))


@programs
def focal():
    return losses(smp.losses.FocalLoss("multiclass"))


@programs
def lovasz():
    return losses(smp.losses.LovaszLoss("multiclass"))


@programs
def statistics():
    def fn(output, target):
        counts = smp.metrics.get_stats(output, target, mode="multiclass", num_classes=3)
        return smp.metrics.iou_score(*counts, reduction="micro")

    return fn, (torch.randint(0, 3, (2, 8, 8)), torch.randint(0, 3, (2, 8, 8)))
