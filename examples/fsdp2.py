"""Parameters sharded over processes: `torchrun --nproc-per-node 2 examples/fsdp2.py`

The layers are compiled, then sharded: each layer is one graph, and `fully_shard` gathers its parameters before it runs.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import dynamo_lite


def main():
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 32), *[nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3)], nn.Linear(32, 1)
    )
    for n in range(1, 4):
        model[n] = dynamo_lite.compile(model[n], backend="aot_eager")
        fully_shard(model[n], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(dist.get_rank())
    for _ in range(20):
        x = torch.randn(16, 8)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    weights = model[1][0].weight.full_tensor().sum().item()
    print(f"rank {dist.get_rank()}: loss {loss.item():.3f}, weights {weights:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
