"""torchmetrics: classes that keep state, and functions."""

import torch
import torchmetrics
import torchmetrics.functional as F

from .program import Programs, image, leaf

programs = Programs("torchmetrics")


def stepped(metric):
    """One update and the value so far, as in a training loop."""

    def step(*args):
        metric.update(*args)
        return metric.compute()

    return step


def classified():
    return torch.randn(8, 5).softmax(-1), torch.randint(0, 5, (8,))


@programs
def accuracy():
    return torchmetrics.Accuracy(task="multiclass", num_classes=5), classified()


@programs
def accuracy_state():
    return stepped(torchmetrics.Accuracy(task="multiclass", num_classes=5)), classified()


@programs
def mean_squared_error():
    return torchmetrics.MeanSquaredError(), (torch.randn(8), torch.randn(8))


@programs
def collection():
    metrics = [torchmetrics.MeanAbsoluteError(), torchmetrics.MeanSquaredError(), torchmetrics.R2Score()]
    return torchmetrics.MetricCollection(metrics), (torch.randn(8), torch.randn(8))


@programs
def f1():
    return stepped(torchmetrics.F1Score(task="multiclass", num_classes=5, average="macro")), classified()


@programs
def confusion():
    return lambda p, t: F.confusion_matrix(p, t, task="multiclass", num_classes=5), classified()


@programs
def auroc():
    return lambda p, t: F.auroc(p, t, task="multiclass", num_classes=5, thresholds=10), classified()


@programs
def ssim():
    return lambda x, y: F.structural_similarity_index_measure(x, y, data_range=1.0), (
        leaf(2, 3, 16, 16),
        image(size=16),
    )


@programs
def perplexity():
    return lambda p, t: F.text.perplexity(p, t, ignore_index=-100), (leaf(2, 6, 9), torch.randint(0, 9, (2, 6)))


@programs
def cosine():
    return stepped(torchmetrics.CosineSimilarity(reduction="mean")), (torch.randn(4, 6), torch.randn(4, 6))
