"""Trains a small model for 20 steps, the way a script written for torch.compile does. Prints the losses."""

import sys

import torch


def main(steps: int = 20) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 1))
    if "--eager" not in sys.argv:
        model = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(steps, 8, 16)
    losses = []
    for batch in inputs:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch), batch.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    for step, loss in enumerate(main()):
        print(f"step {step:2}  loss {loss:.6f}")
