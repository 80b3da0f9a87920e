import torch

import dynamo_lite


def fn(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


A, B = torch.ones(3), -torch.ones(3)


def test_fields_and_text():
    output = dynamo_lite.explain(fn)(A, B)
    assert output.graph_count == 2 == len(output.graphs) == len(output.ops_per_graph)
    assert output.graph_break_count == 1 == len(output.break_reasons)
    assert output.op_count == sum(map(len, output.ops_per_graph)) == 7
    (reason,) = output.break_reasons
    assert reason.reason.startswith("DL001") and reason.user_stack[-1].function == "fn"
    assert output.out_guards and "TIMING: entire_frame_compile" in output.compile_times
    text = str(output)
    assert "2 graphs" in text and "if b.sum() < 0:" in text and "guards" in text


def test_old_form_and_isolation():
    from dynamo_lite.testing import CompileCounter

    counter = CompileCounter()
    compiled = dynamo_lite.compile(fn, backend=counter)
    compiled(A, B)
    count = counter.frame_count
    assert dynamo_lite.explain(compiled, A, B).graph_count == 2
    compiled(A, B)
    assert counter.frame_count == count


def test_module():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    output = dynamo_lite.explain(model)(A)
    assert (output.graph_count, output.graph_break_count) == (1, 0)
