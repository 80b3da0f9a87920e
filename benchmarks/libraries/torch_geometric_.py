"""torch_geometric: layers of graph neural networks, without its compiled extensions."""

import torch
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    SAGEConv,
    TransformerConv,
    global_add_pool,
    global_mean_pool,
)
from torch_geometric.nn.models import MLP, LabelPropagation

from .program import Programs, leaf

programs = Programs("torch_geometric")
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4], [1, 0, 2, 1, 3, 2, 0, 3, 0]])


class Classifier(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second = layer(8, 16), layer(16, 4)

    def forward(self, x, edges):
        x = torch.nn.functional.dropout(self.first(x, edges).relu(), training=self.training)
        return self.second(x, edges).log_softmax(1)


def classifier(layer):
    return Classifier(layer), (leaf(5, 8), EDGES)


@programs
def gcn():
    return classifier(GCNConv)


@programs
def sage():
    return classifier(SAGEConv)


@programs
def gat():
    return classifier(GATConv)


@programs
def graph_conv():
    return classifier(GraphConv)


@programs
def transformer():
    return classifier(TransformerConv)


@programs
def gin():
    return GINConv(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())), (leaf(5, 8), EDGES)


@programs
def pooled():
    conv, batch = GCNConv(8, 4), torch.tensor([0, 0, 1, 1, 1])

    def fn(x, edges):
        x = conv(x, edges)
        return global_mean_pool(x, batch) + global_add_pool(x, batch)

    return fn, (leaf(5, 8), EDGES)


@programs
def weighted_edges():
    conv = GCNConv(8, 4)
    return lambda x, edges, weight: conv(x, edges, weight), (leaf(5, 8), EDGES, torch.rand(9))


@programs
def mlp():
    return MLP([8, 16, 4], norm="batch_norm"), (leaf(5, 8),)


@programs
def label_propagation():
    return LabelPropagation(num_layers=3, alpha=0.9), (torch.tensor([0, 1, 2, 0, 1]), EDGES)
