"""x-transformers: transformers with many options."""

import torch
from x_transformers import (
    AutoregressiveWrapper,
    ContinuousTransformerWrapper,
    CrossAttender,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)

from .program import Programs, image, tokens

programs = Programs("x-transformers")


def decoder(**options):
    return TransformerWrapper(
        num_tokens=20, max_seq_len=32, attn_layers=Decoder(dim=16, depth=2, heads=2, attn_dim_head=8, **options)
    )


@programs
def plain():
    return decoder(), (tokens(),)


@programs
def rotary():
    return decoder(rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True), (tokens(),)


@programs
def alibi():
    return decoder(alibi_pos_bias=True, alibi_num_heads=2), (tokens(),)


@programs
def flash():
    return decoder(attn_flash=True), (tokens(),)


@programs
def relative():
    return decoder(rel_pos_bias=True, attn_qk_norm=True), (tokens(),)


@programs
def memory_tokens():
    return TransformerWrapper(
        num_tokens=20, max_seq_len=32, num_memory_tokens=4, attn_layers=Encoder(dim=16, depth=2, heads=2)
    ), (tokens(),)


@programs
def autoregressive():
    return AutoregressiveWrapper(decoder()), (tokens(),)


@programs
def encoder_decoder():
    model = XTransformer(
        dim=16,
        enc_num_tokens=20,
        enc_depth=1,
        enc_heads=2,
        enc_max_seq_len=32,
        dec_num_tokens=20,
        dec_depth=1,
        dec_heads=2,
        dec_max_seq_len=32,
    )
    return model, (tokens(), tokens())


@programs
def continuous():
    model = ContinuousTransformerWrapper(
        dim_in=6, dim_out=5, max_seq_len=32, attn_layers=Encoder(dim=16, depth=2, heads=2)
    )
    return model, (torch.randn(2, 7, 6),)


@programs
def vision():
    model = ViTransformerWrapper(
        image_size=32, patch_size=8, num_classes=5, attn_layers=Encoder(dim=16, depth=2, heads=2)
    )
    return model, (image(),)


@programs
def cross():
    attender = CrossAttender(dim=16, depth=2, heads=2)
    return lambda x, context: attender(x, context=context), (torch.randn(2, 5, 16), torch.randn(2, 7, 16))
