"""Trainings of a small transformer and a small CNN: hooks of communication, mixed precision, accumulation, checkpoints, pipelines, meshes
of two dimensions. Each takes `World.steps` steps; the optimizer is part of it."""

import contextlib
import dataclasses
import io
import pathlib
import tempfile

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

WORDS, WIDTH, LENGTH = 12, 16, 6


class Attention(nn.Module):
    """Two heads, causal."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).unflatten(-1, (-1, WIDTH // 2)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    """Attention and a feed-forward part."""

    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nn.functional.gelu(self.up(x)))


class Transformer(nn.Module):
    """Layers between an embedding and a linear layer, which share their weight if they are `tied`."""

    def __init__(self, tied=True, checkpointed=False):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.checkpointed = checkpointed
        if tied:
            self.head.weight = self.words.weight

    def forward(self, x):
        x = self.words(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def transformer(**options):
    torch.manual_seed(0)
    return Transformer(**options)


def cnn():
    torch.manual_seed(0)
    block = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    return nn.Sequential(*block, nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(32, WORDS))


def words(world, n):
    return torch.randint(WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(10 * n + world.rank))


def same_words(world, n):
    """The same on all ranks."""
    return words(dataclasses.replace(world, rank=0), n)


def images(world, n):
    return torch.randn(4, 3, 4, 4, generator=torch.Generator().manual_seed(10 * n + world.rank))


def loss_of(result):
    target = torch.arange(result.shape[:-1].numel()) % WORDS
    return nn.functional.cross_entropy(result.reshape(-1, WORDS), target)


def train(
    world, run, parameters, inputs=words, *, optimizer=None, every=1, around=lambda last: contextlib.nullcontext()
):
    """Losses, and the parameters afterwards. The optimizer takes a step after so many backward passes; `around(last)`: what they run in."""
    parameters = list(parameters)
    optimizer = optimizer or torch.optim.AdamW(parameters, lr=0.01, foreach=False)
    losses = []
    for n in range(world.steps):
        last = n % every == every - 1
        with around(last):
            loss = loss_of(run(inputs(world, n)))
            loss.backward()
        losses.append(loss.detach())
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return losses, parameters


SETUPS = {}


def setup(function):
    """A set-up named as the function."""
    SETUPS[function.__name__.replace("_", " ")] = function
    return function


# -- DistributedDataParallel


def in_ddp(world, compile, module, inputs=words, hook=None, **options):
    """Training in DDP with buckets of some layers."""
    parallel = DistributedDataParallel(module, bucket_cap_mb=0.01, **options)
    if hook is not None:
        parallel.register_comm_hook(*hook)
    run = compile(parallel)
    return train(world, run, module.parameters(), inputs), list(module.buffers())


@setup
def transformer_in_DDP(world, compile):
    return in_ddp(world, compile, transformer())


@setup
def CNN_in_DDP(world, compile):
    return in_ddp(world, compile, cnn(), images)


@setup
def CNN_in_DDP_with_buffers_of_its_own(world, compile):
    return in_ddp(world, compile, cnn(), images, broadcast_buffers=False)


@setup
def DDP_views_of_buckets(world, compile):
    return in_ddp(world, compile, transformer(), gradient_as_bucket_view=True)


@setup
def DDP_static_graph_with_checkpoints(world, compile):
    return in_ddp(world, compile, transformer(checkpointed=True), static_graph=True)


@setup
def DDP_compressed_to_half(world, compile):
    return in_ddp(world, compile, transformer(), hook=(None, default_hooks.fp16_compress_hook))


@setup
def DDP_with_PowerSGD(world, compile):
    """In one bucket, since the collectives of several come in any order with gloo. Its random numbers go by the order in which gradients
    come: what is compared is that the ranks agree, and that they learn."""
    module = transformer()
    parallel = DistributedDataParallel(module)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    losses, parameters = train(world, compile(parallel), module.parameters())
    weight = parameters[0].detach()
    others = [torch.empty_like(weight) for _ in range(world.size)]
    distributed.all_gather(others, weight)
    return all(torch.equal(weight, other) for other in others), bool(losses[-1] < losses[0])


@setup
def DDP_under_autocast(world, compile):
    module = transformer()
    run = compile(DistributedDataParallel(module, bucket_cap_mb=0.01))

    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run(x)

    return train(world, forward, module.parameters())


@setup
def DDP_of_frozen_layers(world, compile):
    module = transformer()
    module.layers[0].requires_grad_(False)
    return in_ddp(world, compile, module)


@setup
def DDP_accumulates(world, compile):
    module = transformer()
    parallel = DistributedDataParallel(module, bucket_cap_mb=0.01)
    around = lambda last: contextlib.nullcontext() if last else parallel.no_sync()  # noqa: E731
    return train(world, compile(parallel), module.parameters(), every=3, around=around)


@setup
def DDP_joins_uneven_inputs(world, compile):
    module = transformer()
    parallel = DistributedDataParallel(module, bucket_cap_mb=0.01)
    with Join([parallel]):
        fewer = dataclasses.replace(world, steps=world.steps - 2 * world.rank)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        return train(fewer, compile(parallel), module.parameters(), optimizer=optimizer)


@setup
def DDP_with_a_sharded_optimizer(world, compile):
    module = transformer(tied=False)
    parallel = DistributedDataParallel(module)
    optimizer = ZeroRedundancyOptimizer(module.parameters(), torch.optim.AdamW, lr=0.01)
    return train(world, compile(parallel), module.parameters(), optimizer=optimizer)


@setup
def DDP_with_a_compiled_optimizer(world, compile):
    module = transformer()
    parallel, optimizer = DistributedDataParallel(module), torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.5)
    run, step = compile(parallel), compile(optimizer.step)
    losses = []
    for n in range(world.steps):
        loss = loss_of(run(words(world, n)))
        loss.backward()
        step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses, list(module.parameters())


@setup
def DDP_clips_gradients_and_averages_metrics(world, compile):
    module = transformer()
    run = compile(DistributedDataParallel(module))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    metrics = []
    for n in range(world.steps):
        loss = loss_of(run(words(world, n)))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        mean = torch.stack([loss.detach(), norm])
        distributed.all_reduce(mean)
        metrics.append(mean)
    return metrics, list(module.parameters())


# -- FullyShardedDataParallel and fully_shard


def sharded(module, mesh, **options):
    """The module, of which each layer is sharded."""
    for layer in module.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


@setup
def transformer_in_FSDP2(world, compile):
    module = sharded(transformer(), world.mesh)
    return train(world, compile(module), module.parameters())


@setup
def FSDP2_in_mixed_precision(world, compile):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    module = sharded(transformer(), world.mesh, mp_policy=policy)
    return train(world, compile(module), module.parameters())


@setup
def FSDP2_of_compiled_layers_in_mixed_precision(world, compile):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    module = transformer()
    for layer in module.layers:
        layer.forward = compile(layer.forward)
    module = sharded(module, world.mesh, mp_policy=policy)
    return train(world, module, module.parameters())


@setup
def FSDP2_offloads_to_the_CPU(world, compile):
    module = sharded(transformer(), world.mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
    return train(world, compile(module), module.parameters())


@setup
def FSDP2_with_checkpoints(world, compile):
    module = sharded(transformer(checkpointed=True), world.mesh)
    return train(world, compile(module), module.parameters())


@setup
def FSDP2_with_checkpoints_around_compiled_layers(world, compile):
    module = transformer(checkpointed=True)
    for layer in module.layers:
        layer.forward = compile(layer.forward)
    module = sharded(module, world.mesh)
    return train(world, module, module.parameters())


@setup
def FSDP2_accumulates(world, compile):
    module = sharded(transformer(), world.mesh)

    def around(last):
        module.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    return train(world, compile(module), module.parameters(), every=3, around=around)


@setup
def FSDP2_clips_gradients(world, compile):
    module = sharded(transformer(), world.mesh)
    run, optimizer = compile(module), torch.optim.SGD(module.parameters(), lr=0.1)
    found = []
    for n in range(world.steps):
        loss = loss_of(run(words(world, n)))
        loss.backward()
        found += [loss.detach(), nn.utils.clip_grad_norm_(module.parameters(), 0.5)]
        optimizer.step()
        optimizer.zero_grad()
    return found, list(module.parameters())


@setup
def state_dicts_of_FSDP2(world, compile):
    """Sharded and full, of model and optimizer, saved and loaded into an uncompiled model: the names are those of the model."""
    module = sharded(transformer(tied=False), world.mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    run = compile(module)
    losses, _ = train(world, run, module.parameters(), optimizer=optimizer)
    full = get_model_state_dict(run, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    states = get_optimizer_state_dict(run, optimizer, options=StateDictOptions(full_state_dict=True))
    folder = [tempfile.mkdtemp() if world.rank == 0 else None]
    distributed.broadcast_object_list(folder)
    distributed.checkpoint.save(get_model_state_dict(run), checkpoint_id=pathlib.Path(folder[0]) / "saved")
    other = sharded(transformer(tied=False), world.mesh)
    loaded = get_model_state_dict(other)
    distributed.checkpoint.load(loaded, checkpoint_id=pathlib.Path(folder[0]) / "saved")
    set_model_state_dict(other, loaded)
    return losses, full, states["state"], [p.full_tensor() for p in other.parameters()], loaded


@setup
def state_dict_of_a_compiled_model_in_DDP(world, compile):
    module = transformer()
    parallel = DistributedDataParallel(compile(module))
    losses, _ = train(world, parallel, module.parameters())
    file = io.BytesIO()
    torch.save(get_model_state_dict(parallel), file)
    file.seek(0)
    other = transformer()
    other.load_state_dict(torch.load(file))
    return losses, other.state_dict(), get_model_state_dict(parallel)


def in_fsdp1(world, compile, **options):
    """The transformer, of which each layer is sharded."""
    module, device = transformer(), torch.device("cpu")
    for n, layer in enumerate(module.layers):
        module.layers[n] = FullyShardedDataParallel(layer, use_orig_params=True, device_id=device, **options)
    whole = FullyShardedDataParallel(module, use_orig_params=True, device_id=device, **options)
    return train(world, compile(whole), whole.parameters())


@setup
def transformer_in_FSDP1(world, compile):
    return in_fsdp1(world, compile)


@setup
def FSDP1_in_mixed_precision(world, compile):
    return in_fsdp1(world, compile, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.float32))


@setup
def FSDP1_that_shards_gradients_alone(world, compile):
    return in_fsdp1(world, compile, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)


# -- tensor parallel


PLAN = {
    "attention": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),)),
    **{f"attention.{name}": ColwiseParallel() for name in "qkv"},
    "attention.out": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


def split(module, mesh):
    """The transformer's layers, split over a mesh."""
    for layer in module.layers:
        parallelize_module(layer, mesh, PLAN)
    return module


@setup
def transformer_in_tensor_parallel(world, compile):
    module = split(transformer(), world.mesh)
    return train(world, compile(module), module.parameters(), same_words)


@setup
def layers_in_tensor_parallel(world, compile):
    module = split(transformer(), world.mesh)
    for layer in module.layers:
        layer.forward = compile(layer.forward)
    return train(world, module, module.parameters(), same_words)


@setup
def loss_in_tensor_parallel(world, compile):
    """The results stay split by word, and the loss is computed of them so."""
    module = split(transformer(tied=False), world.mesh)
    parallelize_module(module, world.mesh, {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    around = lambda last: loss_parallel()  # noqa: E731
    return train(world, compile(module), module.parameters(), same_words, optimizer=optimizer, around=around)


@setup
def output_of_a_module_in_tensor_parallel(world, compile):
    module = split(transformer(tied=False), world.mesh)
    prepared = PrepareModuleOutput(output_layouts=(Replicate(),), desired_output_layouts=(Shard(0),))
    parallelize_module(module, world.mesh, {"head": prepared})
    run = compile(module)
    return [run(same_words(world, n)) for n in range(world.steps)]


# -- pipelines


@setup
def pipeline_of_compiled_stages(world, compile):
    """Each rank has a part of the layers, compiled; inputs are cut into four."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    module = transformer(tied=False)
    half = (
        nn.Sequential(module.words, module.layers[0])
        if world.rank == 0
        else nn.Sequential(*module.layers[1:], module.head)
    )
    stage = PipelineStage(compile(half), world.rank, world.size, torch.device("cpu"))
    schedule = ScheduleGPipe(
        stage, 4, loss_fn=lambda result, target: nn.functional.cross_entropy(result.flatten(0, 1), target.flatten())
    )
    optimizer = torch.optim.SGD(half.parameters(), lr=0.1)
    found = []
    for n in range(world.steps):
        generator = torch.Generator().manual_seed(n)
        x, target = torch.randint(WORDS, (2, 8, LENGTH), generator=generator)
        losses = []
        if world.rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=target, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        found.append([loss.detach() for loss in losses])
    return found, list(half.parameters())


# -- meshes of two dimensions, in four processes


IN_FOUR = {}


def setup_in_four(function):
    """A set-up for four processes."""
    IN_FOUR[function.__name__.replace("_", " ")] = function
    return function


def two_dimensions():
    return distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))


@setup_in_four
def FSDP2_over_tensor_parallel(world, compile):
    mesh = two_dimensions()
    module = sharded(split(transformer(), mesh["tp"]), mesh["dp"])
    replica = dataclasses.replace(world, rank=world.rank // 2)
    return train(replica, compile(module), module.parameters())


@setup_in_four
def hybrid_sharding(world, compile):
    module = sharded(transformer(), two_dimensions())
    return train(world, compile(module), module.parameters())


@setup_in_four
def DDP_in_four(world, compile):
    return in_ddp(world, compile, transformer())
