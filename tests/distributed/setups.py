"""Models and loops of training in two processes: data parallel, sharded, tensor and sequence parallel."""

import contextlib

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    """A layer of a transformer, without attention."""

    def __init__(self, width=8):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Blocks between two linear layers."""

    def __init__(self, width=8, depth=2):
        super().__init__()
        self.begin = nn.Linear(4, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.end = nn.Linear(width, 2)

    def forward(self, x):
        x = self.begin(x)
        for block in self.blocks:
            x = block(x)
        return self.end(x)


def model():
    torch.manual_seed(0)
    return Model()


def train(world, module, parameters=None, steps=4, around=lambda n: contextlib.nullcontext(), shape=(3, 4)):
    """Losses, and the parameters afterwards."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for n in range(steps):
        x = torch.linspace(-1, 1, 12).reshape(shape) * (world.rank + n + 1)
        with around(n):
            loss = module(x).square().mean()
            loss.backward()
        losses.append(loss)
        optimizer.step()
        optimizer.zero_grad()
    return losses, [p.detach() for p in (parameters or module).parameters()]


SETUPS = {}


def setup(function):
    """A set-up named as the function."""
    SETUPS[function.__name__.replace("_", " ")] = function
    return function


# -- data parallel


@setup
def compiled_DDP(world, compile):
    return train(world, compile(DistributedDataParallel(model())))


@setup
def DDP_of_a_compiled_model(world, compile):
    return train(world, DistributedDataParallel(compile(model())))


@setup
def compiled_DDP_in_small_buckets(world, compile):
    return train(world, compile(DistributedDataParallel(model(), bucket_cap_mb=0.0005)))


@setup
def compiled_DDP_with_no_sync(world, compile):
    parallel = DistributedDataParallel(model())
    compiled = compile(parallel)
    return train(world, compiled, around=lambda n: contextlib.nullcontext() if n % 2 else parallel.no_sync())


@setup
def compiled_DDP_static_graph(world, compile):
    return train(world, compile(DistributedDataParallel(model(), static_graph=True)))


@setup
def compiled_DDP_find_unused(world, compile):
    return train(world, compile(DistributedDataParallel(model(), find_unused_parameters=True)))


@setup
def compiled_DDP_of_a_sequence(world, compile):
    """The model has no code but torch's."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return train(world, compile(DistributedDataParallel(layers)))


@setup
def DDP_step(world, compile):
    """The whole step is compiled."""
    return steps(world, compile, DistributedDataParallel(model()))


@setup
def DDP_step_of_a_sequence(world, compile):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return steps(world, compile, DistributedDataParallel(layers))


def steps(world, compile, parallel):
    """Four steps, compiled whole: losses, and the parameters afterwards."""
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.05)

    def step(x):
        loss = parallel(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = compile(step)
    return [compiled(torch.full((3, 4), world.rank + n / 4)) for n in range(4)], list(parallel.parameters())


# -- sharded


@setup
def compiled_FSDP1(world, compile):
    return train(world, compile(FullyShardedDataParallel(model(), use_orig_params=True, device_id=torch.device("cpu"))))


@setup
def FSDP1_of_a_compiled_model(world, compile):
    return train(world, FullyShardedDataParallel(compile(model()), use_orig_params=True, device_id=torch.device("cpu")))


@setup
def compiled_FSDP1_of_layers(world, compile):
    whole = model()
    for n, block in enumerate(whole.blocks):
        whole.blocks[n] = FullyShardedDataParallel(block, use_orig_params=True, device_id=torch.device("cpu"))
    return train(world, compile(FullyShardedDataParallel(whole, use_orig_params=True, device_id=torch.device("cpu"))))


def sharded_by_block(world):
    """The model of which each block is sharded, and what is left."""
    sharded = model()
    for block in sharded.blocks:
        fully_shard(block, mesh=world.mesh)
    fully_shard(sharded, mesh=world.mesh)
    return sharded


@setup
def compiled_FSDP2(world, compile):
    sharded = sharded_by_block(world)
    return train(world, compile(sharded), sharded)


@setup
def FSDP2_of_compiled_layers(world, compile):
    sharded = model()
    for n, block in enumerate(sharded.blocks):
        sharded.blocks[n] = compile(block)
        fully_shard(sharded.blocks[n], mesh=world.mesh)
    fully_shard(sharded, mesh=world.mesh)
    return train(world, sharded)


@setup
def FSDP2_of_a_compiled_model(world, compile):
    sharded = compile(model())
    fully_shard(sharded, mesh=world.mesh)
    return train(world, sharded)


@setup
def compiled_FSDP2_that_keeps_what_it_gathers(world, compile):
    sharded = model()
    fully_shard(sharded, mesh=world.mesh, reshard_after_forward=False)
    return train(world, compile(sharded), sharded)


@setup
def FSDP1_step(world, compile):
    sharded = FullyShardedDataParallel(model(), use_orig_params=True, device_id=torch.device("cpu"))
    return steps(world, compile, sharded)


@setup
def FSDP2_step(world, compile):
    sharded = sharded_by_block(world)
    return steps(world, compile, sharded)


@setup
def step_of_a_model_beside_DDP(world, compile):
    """There is a reducer, which does not wait for this model."""
    parallel = DistributedDataParallel(nn.Linear(2, 2))
    return steps(world, compile, model()), parallel(torch.ones(1, 2))


@setup
def step_of_what_DDP_waits_for(world, compile):
    """The backward pass is that of the module inside, after a forward pass of DDP around it."""
    parallel = DistributedDataParallel(model())

    def step(x):
        parallel.module(x).square().mean().backward()

    compiled = compile(step)
    for n in range(3):
        loss = parallel(torch.full((3, 4), world.rank + n / 4)).sum()
        compiled(torch.full((3, 4), world.rank + n / 4))
    return loss, [p.grad for p in parallel.parameters()]


# -- tensor and sequence parallel


@setup
def tensor_parallel(world, compile):
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    parallel = model()
    for block in parallel.blocks:
        parallelize_module(block, world.mesh, plan)
    return train(world, compile(parallel))


@setup
def sequence_parallel(world, compile):
    plan = {
        "norm": SequenceParallel(),
        "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1)),
    }
    parallel = Block()
    torch.manual_seed(0)
    prepared = PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),))
    parallelize_module(parallel, world.mesh, {"": prepared, **plan})
    x = torch.linspace(-1, 1, 64).reshape(2, 4, 8)
    compiled = compile(parallel)
    results = []
    for _ in range(3):
        result = compiled(x)
        result.square().mean().backward()
        results.append((result, [p.grad for p in parallel.parameters()]))
    return results


@setup
def ranks_with_other_sizes(world, compile):
    """Each rank recompiles at another step."""
    parallel = compile(DistributedDataParallel(model()))
    losses = []
    for n in range(4):
        loss = parallel(torch.full((2 + (n if world.rank else 0), 4), 0.5)).square().mean()
        loss.backward()
        losses.append(loss)
    distributed.barrier()
    return losses, list(parallel.parameters())
