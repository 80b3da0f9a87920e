"""vector-quantize-pytorch: quantizers with codebooks that learn."""

from vector_quantize_pytorch import (
    FSQ,
    LFQ,
    GroupedResidualVQ,
    LatentQuantize,
    RandomProjectionQuantizer,
    ResidualFSQ,
    ResidualVQ,
    SimVQ,
    VectorQuantize,
)

from .program import Programs, leaf

programs = Programs("vector-quantize-pytorch")


def sequence():
    return (leaf(2, 8, 16),)


@programs
def quantize():
    return VectorQuantize(dim=16, codebook_size=12, decay=0.8, commitment_weight=1.0), sequence()


@programs
def evaluation():
    return VectorQuantize(dim=16, codebook_size=12).eval(), sequence()


@programs
def cosine():
    return VectorQuantize(dim=16, codebook_size=12, use_cosine_sim=True), sequence()


@programs
def kmeans():
    return VectorQuantize(dim=16, codebook_size=12, kmeans_init=True, kmeans_iters=3), sequence()


@programs
def residual():
    return ResidualVQ(dim=16, num_quantizers=3, codebook_size=12), sequence()


@programs
def grouped():
    return GroupedResidualVQ(dim=16, num_quantizers=2, groups=2, codebook_size=12), sequence()


@programs
def finite_scalar():
    return FSQ(levels=[8, 5, 5]), (leaf(2, 8, 3),)


@programs
def residual_finite_scalar():
    return ResidualFSQ(dim=16, levels=[8, 5], num_quantizers=2), sequence()


@programs
def lookup_free():
    return LFQ(codebook_size=16, dim=16, entropy_loss_weight=0.1), sequence()


@programs
def simple():
    return SimVQ(dim=16, codebook_size=12), sequence()


@programs
def latent():
    return LatentQuantize(levels=[5, 5, 8], dim=16), (leaf(2, 16, 4, 4),)


@programs
def random_projection():
    return RandomProjectionQuantizer(dim=16, num_codebooks=2, codebook_dim=4, codebook_size=12), sequence()
