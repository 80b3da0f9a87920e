"""Entries of torch's caches on disk and the sizes that they are right for: `backends.rewrites.cached_guards`."""

import torch
from torch._functorch import config as functorch_config
from torch._inductor import config
from torch._inductor.utils import fresh_cache

import dynamo_lite
from dynamo_lite.testing import differences


def a_view_for_even_sizes(x, weight):
    return (x[:, ::2].reshape(-1, 4) @ weight).sin()


def compiled_for(sizes, hits):
    """The function, compiled as a later process would do it. `hits` of these come from the caches."""
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(a_view_for_even_sizes, backend="inductor", dynamic=True, fullgraph=True)
    before = torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
    for size in sizes:
        x, weight = torch.randn(2, size, 4), torch.randn(4, 3)
        assert not list(differences(compiled(x, weight), a_view_for_even_sizes(x, weight), tol=1e-5))
    assert torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"] - before == hits


def test_an_entry_is_given_where_its_guards_hold():
    """The kernels for even sizes read something else for odd ones."""
    with fresh_cache(), config.patch(fx_graph_cache=True), functorch_config.patch(enable_autograd_cache=True):
        compiled_for([10, 12], hits=0)
        compiled_for([17, 15], hits=0)
        compiled_for([8, 10, 9], hits=2)


def test_what_is_asked_of_an_entry_is_a_guard():
    with fresh_cache(), config.patch(fx_graph_cache=True), functorch_config.patch(enable_autograd_cache=True):
        compiled_for([10], hits=0)
        compiled_for([12, 17], hits=1)
