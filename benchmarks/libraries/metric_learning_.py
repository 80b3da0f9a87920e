"""pytorch-metric-learning: losses and miners."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers

from .program import Programs, leaf

programs = Programs("pytorch-metric-learning")
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def loss(function):
    return lambda x: function(x, LABELS), (leaf(6, 8),)


@programs
def contrastive():
    return loss(losses.ContrastiveLoss())


@programs
def triplet():
    return loss(losses.TripletMarginLoss(margin=0.2))


@programs
def noise_contrastive():
    return loss(losses.NTXentLoss(temperature=0.1))


@programs
def supervised_contrastive():
    return loss(losses.SupConLoss())


@programs
def multi_similarity():
    return loss(losses.MultiSimilarityLoss())


@programs
def angular_margin():
    return loss(losses.ArcFaceLoss(num_classes=3, embedding_size=8))


@programs
def proxies():
    return loss(losses.ProxyAnchorLoss(num_classes=3, embedding_size=8))


@programs
def circle():
    return loss(losses.CircleLoss())


@programs
def mined():
    miner, function = miners.MultiSimilarityMiner(), losses.TripletMarginLoss(reducer=reducers.MeanReducer())
    return lambda x: function(x, LABELS, miner(x, LABELS)), (leaf(6, 8),)


@programs
def distance():
    return distances.CosineSimilarity(), (leaf(4, 8), leaf(5, 8))
