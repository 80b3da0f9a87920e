"""Backends that take `tanh` for something else, or fail at it."""

import os

import torch


def miscompile(gm, wrong):
    """The graph with each `tanh` exchanged."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if node.target == "tanh":
            wrong(node)
    return torch.fx.GraphModule(gm, graph).forward


def wrong(gm, example_inputs):
    def exchange(node):
        node.target = "sin"

    return miscompile(gm, exchange)


def failing(gm, example_inputs):
    def refuse(node):
        raise NotImplementedError("no tanh")

    return miscompile(gm, refuse)


def crashing(gm, example_inputs):
    return miscompile(gm, lambda node: os.abort())


def bad_gradient(gm, example_inputs):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.tanh()

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    def exchange(node):
        node.op, node.target = "call_function", Bad.apply

    return miscompile(gm, exchange)
