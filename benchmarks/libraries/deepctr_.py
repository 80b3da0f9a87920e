"""deepctr-torch: models of click-through rates."""

import torch
from deepctr_torch.inputs import DenseFeat, SparseFeat
from deepctr_torch.models import AFM, DCN, NFM, ONN, PNN, WDL, AutoInt, DCNMix, DeepFM, FiBiNET, xDeepFM

from .program import Programs

programs = Programs("deepctr-torch")
COLUMNS = [SparseFeat(f"c{i}", vocabulary_size=10, embedding_dim=4) for i in range(3)] + [DenseFeat("d", 1)]


def model(kind, columns=COLUMNS, **options):
    if kind is not PNN:
        options["linear_feature_columns"] = COLUMNS
    network = kind(dnn_feature_columns=columns, task="binary", **options)
    return network, (torch.cat([torch.randint(0, 10, (6, 3)).float(), torch.rand(6, 1)], 1),)


@programs
def deep_fm():
    return model(DeepFM, dnn_hidden_units=(8, 8))


@programs
def extreme_deep_fm():
    return model(xDeepFM, dnn_hidden_units=(8,), cin_layer_size=(8, 4))


@programs
def wide_and_deep():
    return model(WDL, dnn_hidden_units=(8,))


@programs
def cross_network():
    return model(DCN, dnn_hidden_units=(8,))


@programs
def cross_network_mixed():
    return model(DCNMix, dnn_hidden_units=(8,))


@programs
def attentional_fm():
    return model(AFM, COLUMNS[:3])


@programs
def neural_fm():
    return model(NFM, dnn_hidden_units=(8,))


@programs
def product_network():
    return model(PNN, dnn_hidden_units=(8,))


@programs
def automatic_interactions():
    return model(AutoInt, dnn_hidden_units=(8,))


@programs
def bilinear():
    return model(FiBiNET, dnn_hidden_units=(8,))


@programs
def operation_aware():
    return model(ONN, dnn_hidden_units=(8,))
