"""`SDPAParams` and the questions which kernel takes them."""

import pytest
import torch
from torch.backends import cuda
from torch.backends.cuda import SDPAParams

import dynamo_lite
from dynamo_lite.testing import CompileCounter, run_both

QUESTIONS = [cuda.can_use_flash_attention, cuda.can_use_efficient_attention, cuda.can_use_cudnn_attention]


def params(x, **changed):
    fields = {"query": x, "key": x + 1, "value": x * 2, "mask": None, "dropout": 0.5, "causal": True, "gqa": False}
    return SDPAParams(*(fields | changed).values())


def query():
    return torch.ones(2, 3, 8, 16)


@pytest.mark.parametrize("ask", QUESTIONS)
def test_kernels(ask):
    run = run_both(lambda x: x.sin() if ask(params(x), False) else x.cos(), query(), _fullgraph=True)
    assert run.graph_count == 1


def test_attributes():
    def fn(x):
        made = params(x, mask=x > 0)
        numbers = made.dropout, made.is_causal, made.enable_gqa
        return made.query, made.key + made.value, made.attn_mask, numbers

    assert run_both(fn, query(), _fullgraph=True).graph_count == 1


def test_numbers_are_converted():
    made = dynamo_lite.compile(lambda x: params(x, dropout=1).dropout, backend="eager", fullgraph=True)(query())
    assert (type(made), made) == (float, 1.0)


def test_arguments_that_it_refuses():
    def fn(x):
        try:
            params(x, dropout="none")
        except TypeError:
            return x.sin()
        return x.cos()

    run_both(fn, query())


def test_one_that_the_call_returns():
    x = query()
    made = dynamo_lite.compile(lambda x: params(x * 3), backend="eager", fullgraph=True)(x)
    assert torch.equal(made.query, x * 3)
    assert torch.equal(made.value, x * 6)
    assert (made.dropout, made.is_causal, made.attn_mask) == (0.5, True, None)


def test_one_from_outside():
    counter = CompileCounter()
    compiled = dynamo_lite.compile(lambda p, x: p.query * p.dropout + x, backend=counter)
    for dropout in (0.5, 0.25, 0.5):
        given = params(query(), dropout=dropout)
        assert torch.equal(compiled(given, query()), query() * dropout + 1)
    assert counter.frame_count <= 2


def has_answer(ask):
    """A torch that was built with CUDA raises where the driver is missing, for a kernel whose other demands are met."""
    try:
        ask(params(query()), False)
    except RuntimeError:
        return False
    return True


def test_settings_are_guarded():
    counter, questions = CompileCounter(), [ask for ask in QUESTIONS if has_answer(ask)]
    assert cuda.can_use_flash_attention in questions
    compiled = dynamo_lite.compile(
        lambda x: x * sum(ask(params(x), False) for ask in questions), backend=counter, fullgraph=True
    )
    compiled(query())
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        compiled(query())
    assert counter.frame_count == 2


def test_printing_of_reasons_is_a_break():
    run = run_both(lambda x: x.sin() if cuda.can_use_flash_attention(params(x), True) else x.cos(), query())
    assert [b.slug for b in run.breaks] == ["call-print"]
