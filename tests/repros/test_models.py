"""What models of transformers and timm met, in the small."""

import torch

from dynamo_lite.testing import run_both


def test_types_of_numbers_as_dtypes():
    def f(x):
        size = torch.zeros(3, dtype=int), torch.ones(2, dtype=bool), torch.zeros_like(x, dtype=complex)
        return size, x.to(float), x.sum(dtype=float), torch.softmax(x, -1, dtype=float)

    run = run_both(f, torch.randn(3))
    assert run.graph_count == 1
    assert not run.breaks
    dtypes = {node.kwargs.get("dtype") for node in run.graphs[0].graph.nodes}
    assert {torch.int64, torch.bool, torch.complex128, torch.float64} <= dtypes


def test_a_type_that_the_operator_refuses():
    def f(x):
        try:
            return x.new_zeros(2, device=int)
        except TypeError:
            return x + 1

    run_both(f, torch.randn(3))


class Router(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = torch.nn.Linear(3, 3)

    def forward(self, x):
        self.classifier = self.classifier.to(torch.float32)
        return self.classifier(x)


def test_a_module_moved_to_where_it_is():
    run = run_both(Router(), torch.randn(2, 3))
    assert run.graph_count == 1
    assert not run.breaks


def test_a_module_moved_to_another_type():
    def f(module, x):
        return module.to(torch.float64)(x.double())

    run_both(f, torch.nn.Linear(3, 3), torch.randn(2, 3))


def test_a_check_whose_message_shows_data():
    """As multimodal models of transformers count their placeholders: the text is needed only where the check fails."""

    def fn(ids, features):
        mask = ids == 7
        count = mask.sum()
        message = f"{count} tokens and {features.shape[0]} features"
        torch._check_tensor_all_with(ValueError, count == features.shape[0], lambda: message)
        if count != features.shape[0]:
            raise ValueError(f"no: {count}")
        return features * 2

    ids = torch.tensor([1, 7, 7, 2])
    run = run_both(fn, ids, torch.ones(2))
    assert run.graph_count == 1 and not run.breaks
    run = run_both(fn, ids, torch.ones(3))
    assert str(run.exception) == "2 tokens and 3 features"


def test_paths_into_a_pytree():
    # torch.return_types holds a class that is no named result.
    def f(x):
        leaves, _ = torch.utils._pytree.tree_flatten_with_path(([x, x + 1], {"a": x}))
        return [torch.utils._pytree.keystr(path) for path, _ in leaves], leaves[1][1]

    run = run_both(f, torch.randn(3))
    assert run.result[0] == ["[0][0]", "[0][1]", "[1]['a']"]
    assert run.graph_count == 1
