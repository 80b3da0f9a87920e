"""Tensors made from Python values, legacy classes, lists of bools as indices, `.data`, hooks of modules, scripted modules."""

import pytest
import torch

import dynamo_lite
from dynamo_lite.testing import run_both


def x():
    return torch.arange(16.0).reshape(4, 4)


def whole(fn, *args):
    run = run_both(fn, *args)
    assert run.graph_count == 1 and not run.breaks, (run.graph_count, run.breaks)


def test_tensor_of_tensors():
    whole(
        lambda a: (torch.tensor([a[0, 0], a[1, 1]]), torch.tensor([[a[0, 0], 2], [3, a[0, 1]]], dtype=torch.float64)),
        x(),
    )


def test_legacy_classes():
    whole(lambda a: (torch.FloatTensor([1.0]) + a[0], torch.LongTensor([1, 2]), torch.Tensor(2, 2).zero_()), x())
    whole(lambda a: (a + 1, isinstance(a, torch.FloatTensor), isinstance(a, torch.cuda.FloatTensor)), x())
    whole(lambda a: (a + 1, isinstance(a, torch.DoubleTensor)), x().double())


def test_lists_of_bools():
    def index(a):
        b = a.clone()
        b[:, [True, False, True, False]] = 0
        return a[[True, False, False, True]], a[:, [False, True, False, True]], a[None, [True, False, False, True]], b

    whole(index, x())


def test_a_list_of_bools_of_another_length_is_an_error():
    with pytest.raises(IndexError):
        dynamo_lite.compile(lambda a: a[[True, False]], backend="eager")(x())


def test_data_of_a_new_tensor():
    def replace(a):
        b = a.clone()
        view = b[0]
        b.data = a + 1
        view += 100
        return b, view

    whole(replace, x())


def test_operators_return_the_argument_itself():
    whole(lambda a: (a.contiguous() is a, a.view(4, 4) is a, a * 2), x())


def test_backward_hook_of_a_module():
    def seen_by_hook(compiled):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        seen = []
        model[0].register_full_backward_hook(lambda module, gi, go: seen.append(go[0].clone()))
        model = dynamo_lite.compile(model, backend="eager") if compiled else model
        model(x()).sum().backward()
        return seen

    (eager,), (captured,) = seen_by_hook(False), seen_by_hook(True)
    assert torch.equal(eager, captured)


def test_scripted_module_runs_as_it_is():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = torch.jit.script(torch.nn.Linear(4, 4))

        def forward(self, a):
            return self.scripted(a + 1) * 2

    model = Model()
    assert torch.equal(dynamo_lite.compile(model, backend="eager")(x()), model(x()))


def test_attributes_of_modules_that_are_computed():
    whole(lambda a: (a * 2, torch.backends.cudnn.enabled, torch.backends.cudnn.version()), x())


def test_a_module_has_no_builtins():
    with pytest.raises(AttributeError, match="module 'torch' has no attribute 'print'"):
        dynamo_lite.compile(lambda a: torch.print(a), backend="eager")(x())
