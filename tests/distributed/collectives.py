"""Functions with collectives of one input, and what they ask of groups and meshes."""

import torch
from torch import distributed
from torch.distributed import _functional_collectives as functional
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

OPERATORS = torch.ops._c10d_functional
GATHERED, KEPT, HALVED = (8, 2), (4, 2), (2, 2)


def changed(x, communicate):
    """`x * 2` after a collective that writes to it."""
    y = x * 2
    communicate(y)
    return y + 1


def made(x, shape, communicate):
    """What a collective of `x * 2` writes to a new tensor."""
    out = x.new_empty(shape)
    communicate(out, x * 2)
    return out + 1


def awaited(x, group):
    y = x * 2
    work = distributed.all_reduce(y, group=group, async_op=True)
    z = x + 3
    work.wait()
    return y + z


def listed(x):
    y = x * 2
    out = [torch.empty_like(y) for _ in range(2)]
    distributed.all_gather(out, y)
    return out[0] - out[1]


def changes_its_input(x):
    distributed.all_reduce(x)
    return x + 1


def says_mesh(x, mesh):
    return x * (mesh.size() + mesh.get_local_rank() + mesh.ndim + mesh.size(0)) + mesh.shape[0] + mesh["dp"].size()


FUNCTIONAL = {
    "all_reduce": lambda x, w: functional.all_reduce(x * 2, "sum", w.group) + 1,
    "all_reduce of the default group": lambda x, w: functional.all_reduce(x * 2, "sum", distributed.group.WORLD) + 1,
    "all_reduce by name": lambda x, w: functional.all_reduce(x * 2, "sum", w.group.group_name) + 1,
    "all_reduce by ranks": lambda x, w: functional.all_reduce(x * 2, "sum", [0, 1]) + 1,
    "all_reduce of a mesh": lambda x, w: functional.all_reduce(x * 2, "sum", w.mesh) + 1,
    "all_reduce of a dimension": lambda x, w: functional.all_reduce(x * 2, "sum", (w.mesh, 0)) + 1,
    "all_reduce of a submesh": lambda x, w: functional.all_reduce(x * 2, "sum", w.mesh["dp"]) + 1,
    "result of a collective": lambda x, w: functional.all_reduce(x * 2, "sum", w.group),
    "wait_tensor": lambda x, w: functional.wait_tensor(OPERATORS.all_reduce(x * 2, "sum", w.group.group_name)) + 1,
    "all_gather_tensor": lambda x, w: functional.all_gather_tensor(x * 2, 0, w.group) + 1,
    "all_gather_tensor, other dimension": lambda x, w: functional.all_gather_tensor(x * 2, 1, w.group) + 1,
    "all_gather_tensor_autograd": lambda x, w: functional.all_gather_tensor_autograd(x * 2, 0, w.group) + 1,
    "reduce_scatter_tensor": lambda x, w: functional.reduce_scatter_tensor(x * 2, "sum", 0, w.group) + 1,
    "reduce_scatter_tensor_autograd": lambda x, w: functional.reduce_scatter_tensor_autograd(x * 2, "sum", 0, w.group),
    "all_to_all_single": lambda x, w: functional.all_to_all_single(x * 2, None, None, w.group) + 1,
    "all_to_all_single_autograd": lambda x, w: functional.all_to_all_single_autograd(x * 2, [2, 2], [2, 2], w.group),
    "broadcast": lambda x, w: functional.broadcast(x * 2, 1, w.group) + 1,
    "all_reduce_coalesced": lambda x, w: functional.all_reduce_coalesced([x * 2, x + 1], "sum", w.group),
    "rank and world size": lambda x, w: x * (distributed.get_rank() + 1) * distributed.get_world_size(w.group),
    "size and rank of a group": lambda x, w: x * (w.group.size() + w.group.rank()),
    "a mesh": lambda x, w: says_mesh(x, w.mesh),
    "ranks in groups": lambda x, w: x * distributed.get_global_rank(w.group, 1) + len(w.mesh.mesh_dim_names),
}
IN_PLACE = {
    "dist.all_reduce": lambda x, w: changed(x, distributed.all_reduce),
    "dist.all_reduce, maximum of a group": lambda x, w: changed(
        x, lambda y: distributed.all_reduce(y, distributed.ReduceOp.MAX, w.group)
    ),
    "dist.all_reduce of an input": lambda x, w: changes_its_input(x),
    "dist.all_reduce of complex numbers": lambda x, w: changed(x * 1j, distributed.all_reduce),
    "dist.all_reduce, then wait": lambda x, w: awaited(x, w.group),
    "dist.broadcast": lambda x, w: changed(x, lambda y: distributed.broadcast(y, 1)),
    "dist.all_gather": lambda x, w: listed(x),
    "dist.all_gather_into_tensor": lambda x, w: made(x, GATHERED, distributed.all_gather_into_tensor),
    "dist.reduce_scatter_tensor": lambda x, w: made(x, HALVED, distributed.reduce_scatter_tensor),
    "dist.all_to_all_single": lambda x, w: made(x, KEPT, distributed.all_to_all_single),
}


def once_and_again(function, requires_grad=False):
    """The set-up that calls a function twice with each of two sizes; results, inputs afterwards, gradients."""

    def setup(world, compile):
        compiled, found = compile(function, fullgraph=True), []
        for rows in (4, 4, 8):
            x = (torch.arange(rows * 2.0).reshape(rows, 2) + world.rank).requires_grad_(requires_grad)
            result = compiled(x, world)
            if requires_grad:
                sum((item * item).sum() for item in (result if isinstance(result, list) else [result])).backward()
            found.append((result, x, x.grad if requires_grad else None))
        return found

    return setup


SHAPED = {
    "dist.all_gather_into_tensor",
    "dist.reduce_scatter_tensor",
    "dist.all_to_all_single",
    "all_to_all_single_autograd",
}


def fixed_size(function):
    """The same with one size: of functions that say the sizes of results."""

    def setup(world, compile):
        compiled = compile(function, fullgraph=True)
        return [compiled(torch.arange(8.0).reshape(4, 2) + world.rank, world) for _ in range(2)]

    return setup


SETUPS = {name: (fixed_size if name in SHAPED else once_and_again)(f) for name, f in {**FUNCTIONAL, **IN_PLACE}.items()}
SETUPS |= {f"{name}, gradients": once_and_again(f, True) for name, f in FUNCTIONAL.items() if name not in SHAPED}


def setup(function):
    """A set-up of its own, named as the function."""
    SETUPS[function.__name__.replace("_", " ")] = function
    return function


@setup
def work_that_leaves_the_graph(world, compile):
    def begin(x):
        y = x * 2
        return y, distributed.all_reduce(y, async_op=True)

    y, work = compile(begin)(torch.ones(3))
    work.wait()
    return y


@setup
def work_that_nobody_waits_for_in_the_graph(world, compile):
    def begin(x, works):
        y = x * 2
        works.append(distributed.all_reduce(y, async_op=True))
        distributed.get_backend()
        return y

    works = []
    y = compile(begin)(torch.ones(3), works)
    works[0].wait()
    return y


@setup
def python_objects(world, compile):
    def gather(x):
        found = [None, None]
        distributed.all_gather_object(found, {"rank": distributed.get_rank()})
        return x + found[1]["rank"]

    return compile(gather)(torch.ones(3))


@setup
def other_groups(world, compile):
    """The second group is guarded: another version."""
    compiled = compile(lambda x, group: functional.all_reduce(x, "sum", group) * group.size(), fullgraph=True)
    alone = [distributed.new_group([rank]) for rank in range(world.size)][world.rank]
    return [compiled(torch.ones(3), group) for group in (world.group, alone, world.group, alone)]


@setup
def gradients_averaged_by_hand(world, compile):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        for parameter in model.parameters():
            distributed.all_reduce(parameter.grad)
            parameter.grad /= distributed.get_world_size()
        optimizer.step()

    compiled = compile(step)
    for n in range(4):
        compiled(torch.full((3, 4), float(world.rank + n)))
    return model.state_dict()


@setup
def inplace_collective_of_a_tensor_with_a_history(world, compile):
    x = torch.ones(3, requires_grad=True)

    def f(x):
        y = x * 2
        distributed.all_reduce(y)
        return y * y

    result = compile(f)(x)
    result.sum().backward()
    return result, x.grad


@setup
def sizes_from_data(world, compile):
    """Rows are sent to the rank that they name; how many arrive is asked before."""

    def f(i):
        counts = torch.bincount(i, minlength=2)
        received = torch.empty_like(counts)
        distributed.all_to_all_single(received, counts)
        out = i.new_empty(int(received.sum()))
        distributed.all_to_all_single(out, i, received.tolist(), counts.tolist())
        return received, out

    compiled = compile(f)
    return [compiled(torch.tensor([0, 1, 1, world.rank])), compiled(torch.tensor([0, 0, 1, 1, world.rank]).sort()[0])]


def split_table(world):
    """A table of which each rank has some rows, and positions in it."""
    table = distribute_tensor(torch.arange(16.0).view(8, 2), world.mesh, [Shard(0)])
    return table, distribute_tensor(torch.tensor([1, 7]), world.mesh, [Replicate()])


@setup
def module_with_a_split_table(world, compile):
    torch.manual_seed(0)
    module = torch.nn.Embedding(8, 4)
    parallelize_module(module, world.mesh, RowwiseParallel(input_layouts=Replicate()))
    found = [compile(module, fullgraph=True)(torch.tensor([[1, 7, 3]])) + 0 for _ in range(2)]
    found[0].sum().backward()
    return found, module(torch.tensor([[2, 5]])) + 0, module.weight.grad.full_tensor()


@setup
def rows_of_a_split_table_that_leave_the_graph(world, compile):
    """Masks, which torch keeps with placements, are no fake ones afterwards."""
    table, positions = split_table(world)
    compiled = compile(lambda i: torch.nn.functional.embedding(i, table))
    return [call(positions).full_tensor() for call in (compiled, lambda i: torch.nn.functional.embedding(i, table))]


@setup
def rows_of_a_split_table_before_a_break(world, compile):
    table, positions = split_table(world)

    def f(i):
        rows = torch.nn.functional.embedding(i, table)
        distributed.barrier()
        return rows.full_tensor() + 1

    compiled = compile(f)
    return [compiled(positions), compiled(positions)]
