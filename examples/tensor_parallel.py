"""A layer split over processes: `torchrun --nproc-per-node 2 examples/tensor_parallel.py`

The first linear layer is split by columns, the second by rows; the collectives between them are operators of the compiled graph.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import dynamo_lite


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    compiled = dynamo_lite.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(20):
        x = torch.randn(16, 8)
        loss = (compiled(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = model[0].weight.full_tensor().sum().item()
    print(f"rank {dist.get_rank()}: loss {loss.item():.3f}, weights {weights:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
