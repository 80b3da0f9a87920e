"""vit-pytorch: vision transformers."""

from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT
from vit_pytorch.crossformer import CrossFormer
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.levit import LeViT
from vit_pytorch.max_vit import MaxViT
from vit_pytorch.mobile_vit import MobileViT
from vit_pytorch.parallel_vit import ViT as ParallelViT

from .program import Programs, image

programs = Programs("vit-pytorch")
SIZES = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 32}


@programs
def vit():
    return ViT(**SIZES, dropout=0.1, emb_dropout=0.1), (image(),)


@programs
def simple():
    return SimpleViT(**SIZES), (image(),)


@programs
def deep():
    return DeepViT(**SIZES), (image(),)


@programs
def cait():
    return CaiT(**SIZES, cls_depth=1, layer_dropout=0.05), (image(),)


@programs
def compact():
    return CCT(
        img_size=32, embedding_dim=32, n_conv_layers=1, num_layers=2, num_heads=2, mlp_ratio=2.0, num_classes=5
    ), (image(),)


@programs
def levit():
    return LeViT(image_size=64, num_classes=5, stages=2, dim=(16, 32), depth=1, heads=(2, 2), mlp_mult=2), (
        image(size=64),
    )


@programs
def crossformer():
    return CrossFormer(
        num_classes=5, dim=(64, 64, 128, 128), depth=(1, 1, 1, 1), global_window_size=(4, 2, 2, 1), local_window_size=2
    ), (image(size=64),)


@programs
def max_vit():
    return MaxViT(num_classes=5, dim_conv_stem=8, dim=16, dim_head=8, depth=(1, 1), window_size=4), (image(size=32),)


@programs
def mobile():
    return MobileViT(
        image_size=(64, 64), dims=[16, 24, 32], channels=[8, 8, 16, 16, 24, 24, 32, 32, 40, 40, 48], num_classes=5
    ), (image(size=64),)


@programs
def parallel():
    return ParallelViT(**SIZES, num_parallel_branches=2), (image(),)
