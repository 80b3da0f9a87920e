"""Data parallel training: `torchrun --nproc-per-node 2 examples/ddp.py`

Each process compiles the model for itself; `DistributedDataParallel` averages the gradients.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dynamo_lite


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    parallel = DistributedDataParallel(dynamo_lite.compile(model, backend="aot_eager"))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for _ in range(20):
        x = torch.randn(16, 8)
        loss = (parallel(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()}: loss {loss.item():.3f}, weights {model[0].weight.sum().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
