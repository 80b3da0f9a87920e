"""perceiver-pytorch and others of its author: variants of attention."""

import torch
from conformer import Conformer
from denoising_diffusion_pytorch import GaussianDiffusion, Unet
from g_mlp_pytorch import gMLP
from hyper_connections import HyperConnections
from linear_attention_transformer import LinearAttentionTransformerLM
from local_attention import LocalAttention
from mlp_mixer_pytorch import MLPMixer
from nystrom_attention import Nystromformer
from perceiver_pytorch import Perceiver, PerceiverIO
from performer_pytorch import SelfAttention

from .program import Programs, image, leaf, tokens

programs = Programs("perceiver-pytorch")


@programs
def perceiver():
    model = Perceiver(
        input_channels=3,
        num_freq_bands=2,
        max_freq=4.0,
        depth=1,
        num_latents=4,
        latent_dim=8,
        latent_heads=2,
        cross_dim_head=4,
        latent_dim_head=4,
        num_classes=5,
    )
    return model, (torch.rand(1, 8, 8, 3),)


@programs
def perceiver_io():
    model = PerceiverIO(dim=8, queries_dim=6, depth=1, num_latents=4, latent_dim=8, latent_heads=2)
    return lambda x, queries: model(x, queries=queries), (leaf(1, 10, 8), leaf(3, 6))


@programs
def performer():
    return SelfAttention(dim=16, heads=2, dim_head=8, causal=False), (leaf(1, 12, 16),)


@programs
def local():
    layer = LocalAttention(dim=8, window_size=4, causal=True, autopad=True)
    return layer, (leaf(2, 10, 8), leaf(2, 10, 8), leaf(2, 10, 8))


@programs
def linear():
    return LinearAttentionTransformerLM(num_tokens=20, dim=16, heads=2, depth=1, max_seq_len=16), (tokens(),)


@programs
def conformer():
    return Conformer(dim=16, depth=1, dim_head=8, heads=2, conv_kernel_size=5), (leaf(1, 8, 16),)


@programs
def nystrom():
    return Nystromformer(dim=16, dim_head=8, heads=2, depth=1, num_landmarks=4), (leaf(1, 8, 16),)


@programs
def gated_mlp():
    return gMLP(num_tokens=20, dim=16, depth=2, seq_len=16), (tokens(),)


@programs
def mixer():
    return MLPMixer(image_size=32, channels=3, patch_size=8, dim=16, depth=2, num_classes=5), (image(),)


@programs
def hyper_connected():
    layer = HyperConnections(2, dim=8, branch=torch.nn.Linear(8, 8))
    return layer, (leaf(2, 5, 8),)


@programs
def diffusion():
    model = GaussianDiffusion(Unet(dim=8, dim_mults=(1, 2), flash_attn=False), image_size=8, timesteps=10)
    return model, (image(size=8),)
