"""The timm part of the zoo: one or more models of each family, with random weights.

Input: the installed timm. Output: `MODELS`, name → `Entry`. The models are those that timm builds, in full depth; images
are as small as a model takes them. Nothing is downloaded.
"""

from __future__ import annotations

from typing import Any

import torch

from .zoo_inputs import Entry, Example, Inputs


def case(name: str, size: int | None, train: bool, options: dict[str, Any]) -> Entry:
    def build() -> Example:
        import timm

        torch.manual_seed(0)
        model = timm.create_model(name, pretrained=False, **options)
        pixels = size or model.default_cfg["input_size"][-1]

        def make(batch: int, image: int = 0) -> Inputs:
            torch.manual_seed(1)
            return {"x": torch.randn(batch, 3, pixels + 8 * image, pixels + 8 * image)}

        return model, make

    return Entry(build, train, ("image",))


def table(size: int | None, names: str, *, train: str = "", **options: Any) -> dict[str, Entry]:
    """The models for images of that size (None: of the model's own); those in `train` are trained too."""
    trained = train.split()
    return {name: case(name, size, name in trained, options) for name in names.split()}


MODELS: dict[str, Entry] = {
    # which take images of any size
    **table(
        64,
        """resnet50 resnetv2_50 ecaresnet26t resnest26d res2net101_26w_4s skresnet18 legacy_seresnet18 hrnet_w18 densenet121
        dla34 dpn68 vgg11_bn xception41 nasnetalarge pnasnet5large efficientnet_b0 mobilenetv3_large_100 mobilenetv5_base
        hardcorenas_a ghostnet_100 rexnet_100 regnety_004 cspresnet50 cspnext_tiny cs3darknet_focus_s selecsls42 tresnet_m
        vovnet39a dm_nfnet_f0 repvit_m1 repghostnet_100 convnext_tiny convnextv2_atto convmixer_768_32
        inception_next_tiny fasternet_t0 starnet_s1 hgnet_tiny hgnetv2_b0 lcnetv2_small mambaout_femto rdnet_tiny gcresnet33ts
        edgenext_small caformer_s18 poolformer_s12 pvt_v2_b0 davit_tiny focalnet_tiny_srf efficientvit_b0 efficientvim_m1
        mobilevit_xxs mobilevitv2_050 nextvit_small fastvit_t8 shvit_s1 iformer_t lowformer_b0 cpubone_nano tiny_vit_5m_224
        csatv2 hieradet_small qwen3_vit_88m gemma4_vit_167m""",
        train="resnet50 densenet121 efficientnet_b0 convnext_tiny regnety_004 mobilenetv3_large_100 hrnet_w18 vgg11_bn",
    ),
    **table(56, "deepseek_vit_412m"),
    **table(96, "inception_v3 inception_v4 inception_resnet_v2 legacy_xception"),
    # made for images of one size
    **table(
        64,
        """beit_base_patch16_224 botnet26t_256 lambda_resnet26rpt_256 cait_m36_384 coat_lite_mini convit_tiny
        deit_tiny_patch16_224 efficientformerv2_s0 efficientvit_m0 eva02_tiny_patch14_224 gcvit_xxtiny
        hiera_tiny_224 levit_128s coatnet_nano_rw_224 maxvit_tiny_tf_224 mixer_s16_224 gmlp_ti16_224 mvitv2_tiny nest_tiny
        pit_ti_224 sequencer2d_s swiftformer_xs swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 swinv2_cr_tiny_224
        tnt_s_patch16_224 twins_pcpvt_small visformer_tiny vit_tiny_patch16_224 vit_tiny_r_s16_p8_224
        vit_relpos_small_patch16_224 samvit_base_patch16_224 vitamin_small_224 volo_d1_224 xcit_nano_12_p16_224
        naflexvit_base_patch16_gap""",
        train="vit_tiny_patch16_224 swin_tiny_patch4_window7_224 mixer_s16_224",
        img_size=64,
    ),
    **table(None, "crossvit_9_240 efficientformer_l1"),
}
