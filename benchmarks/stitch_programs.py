"""Steps of loops as people write them, with the lines that they print and log: evaluation, training, sampling.

Input: none; each function makes a step with its models, optimizers and meters. Output: a step takes its number and a batch of shape
(32, 64).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Step = Callable[[int, torch.Tensor], Any]

WIDTH, BATCH = 64, 32
STEPS = 20


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(STEPS)]


def _layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 8))


def evaluation() -> Step:
    """Loss and accuracy of a batch, in meters as people write them."""
    model, totals = _layers(), {"loss": 0.0, "right": 0, "seen": 0}

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        scores = model(x)
        labels = x[:, :8].argmax(1)
        loss = nn.functional.cross_entropy(scores, labels)
        totals["loss"] += loss.item() * len(x)
        totals["right"] += (scores.argmax(1) == labels).sum().item()
        totals["seen"] += len(x)
        print(f"batch {i:03d}: loss {totals['loss'] / totals['seen']:.4f}")
        return scores.softmax(1)

    return step


def training() -> Step:
    """A step of SGD by hand, which prints the loss and the norm of the gradient before the weights change."""
    weight = torch.zeros(WIDTH, 8)

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        target = x[:, :8]
        off = x @ weight - target
        print("step", i, f"loss {off.square().mean().item():.5f}")
        gradient = x.T @ off * (2 / len(x))
        norm = gradient.norm()
        print("gradient", round(1.0, 1), f"{norm.item():.3e}")
        weight.sub_(gradient * 0.05 / norm.clamp(min=1))
        return off

    return step


def policy() -> Step:
    """The losses of PPO, with the numbers that are usually logged."""
    model, fractions = _layers(), []
    logger = logging.Logger("ppo", logging.INFO)
    logger.addHandler(logging.NullHandler())

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        logits = model(x).log_softmax(1)
        ratio = (logits - logits.roll(1, 0)).exp()
        fractions.append(((ratio - 1).abs() > 0.2).float().mean().item())
        kl = ((ratio - 1) - ratio.log()).mean()
        logger.info("update %d: approximate kl %.5f", i, kl.item())
        advantage = x[:, :8] - x[:, :8].mean()
        loss = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(logits.exp() * logits).sum(1).mean()
        logger.debug("entropy %s", entropy)
        print("loss", f"{loss.item():.4f}", "entropy", f"{entropy.item():.4f}")
        return loss - 0.01 * entropy

    return step


def sampling() -> Step:
    """Four steps of a sampler with a line of progress each."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        for k in range(4):
            noise = model(x)
            x = (x - 0.1 * noise).clamp(-3, 3)
            print("turn", k, f"deviation {x.std().item():.4f}", flush=True)
        return x

    return step


def monitored() -> Step:
    """A model whose layers report the mean of what they return."""
    layers = list(_layers())

    @torch.no_grad()
    def step(i: int, x: torch.Tensor) -> Any:
        for k, layer in enumerate(layers):
            x = layer(x)
            if i % 2 == 0:
                print("layer", k, x.mean())
        return x

    return step


class Block(nn.Module):
    """A pre-norm transformer layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.mlp(self.norms[1](x))


class Language(nn.Module):
    """A small GPT over tokens."""

    def __init__(self, words: int = 50) -> None:
        super().__init__()
        self.words, self.block, self.head = nn.Embedding(words, WIDTH), Block(), nn.Linear(WIDTH, words)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.block(self.words(ids)))


def _tokens(x: torch.Tensor) -> torch.Tensor:
    return (x[:8, :33].abs() * 20).long().clamp(max=49)


def language_model() -> Step:
    """A step of nanoGPT: two micro batches, clipped gradients, AdamW, a line with loss and norm."""
    model = Language()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(i: int, x: torch.Tensor) -> Any:
        total = 0.0
        for ids in _tokens(x).chunk(2):
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) / 2
            total += loss.item()
            loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"iter {i}: loss {total:.4f}, norm {norm.item():.3f}")
        return total

    return step


def trainer() -> Step:
    """A step of a trainer with a state, a history and a logger that gets a dict of metrics every second step."""
    model, state, history = _layers(), {"step": 0, "loss": 0.0}, []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    logger = logging.Logger("trainer", logging.INFO)
    logger.addHandler(logging.NullHandler())

    def step(i: int, x: torch.Tensor) -> Any:
        model.train()
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :8])
        loss.backward()
        optimizer.step()
        state["step"] += 1
        state["loss"] += loss.item()
        if i % 2:
            history.append({"loss": loss.item()})
            logger.info("metrics %s", {"loss": loss.item(), "epoch": 0.1})
        return loss.detach()

    return step


def adversarial() -> Step:
    """A step of a GAN: the discriminator, then the generator, and the line of the tutorial."""
    generator, judge = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh()), _layers()
    optimizers = [torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (generator, judge)]

    def step(i: int, x: torch.Tensor) -> Any:
        optimizers[1].zero_grad()
        fake = generator(x[:, :8])
        real_loss = F.softplus(-judge(x)).mean()
        fake_loss = F.softplus(judge(fake.detach())).mean()
        (real_loss + fake_loss).backward()
        optimizers[1].step()
        print("[%d/%d] Loss_D: %.4f" % (i, STEPS, (real_loss + fake_loss).item()), end=" ")  # noqa: UP031
        optimizers[0].zero_grad()
        loss = F.softplus(-judge(fake)).mean()
        loss.backward()
        optimizers[0].step()
        print(f"Loss_G: {loss.item():.4f}")
        return loss.detach()

    return step


def classifier() -> Step:
    """A step of a classifier with a running mean of the loss, hits of the top three, and a line about the first layer's gradient."""
    model = _layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    running: dict[str, list[float]] = {"loss": [], "top3": []}

    def step(i: int, x: torch.Tensor) -> Any:
        labels = x[:, :8].argmax(1)
        scores = model(x)
        loss = F.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        print("gradient", f"{model[0].weight.grad.abs().mean().item():.5f}")
        optimizer.step()
        hits = (scores.topk(3).indices == labels[:, None]).any(1)
        running["loss"].append(loss.item())
        running["top3"].append(hits.float().mean().item())
        print(f"step {i} loss {loss:.4f} hits {hits.sum()}")
        return scores.detach()

    return step


def diffusion() -> Step:
    """A step that trains a denoiser, with the loss per quarter of the noise levels in a list of meters."""
    model = nn.Sequential(nn.Linear(WIDTH + 1, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    meters: list[float] = []

    def step(i: int, x: torch.Tensor) -> Any:
        level = x[:, :1].sigmoid()
        noise = x.roll(1, 0)
        given = torch.cat([(1 - level).sqrt() * x + level.sqrt() * noise, level], 1)
        off = (model(given) - noise).square().mean(1)
        loss = off.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meters.append(loss.item())
        print("%4d | loss %.3f | first" % (i, loss.item()), off.detach()[:2].round(decimals=2))  # noqa: UP031
        return loss.detach()

    return step


PROGRAMS = (
    *(evaluation, training, policy, sampling, monitored),
    *(language_model, trainer, adversarial, classifier, diffusion),
)
