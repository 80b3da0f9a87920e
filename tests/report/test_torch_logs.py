"""`TORCH_LOGS`, `torch._logging.set_logs` and `TORCH_TRACE`: a program under dynamo_lite writes what it writes under torch.compile."""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import defaultdict

import pytest

PROGRAM = """
import sys
import torch
{compiler}

def helper(x):
    if x.sum() > 0:
        return x + 1
    return x - 1

@compile(backend="eager")
def f(x, y):
    z = x * 2
    z = helper(z)
    total = z.sum()
    k = total.item()
    return z @ y + k

@compile(backend="eager")
def g(x):
    return torch.relu(x) + x.shape[0]

f(torch.ones(3, 4), torch.ones(4, 5))
g(torch.ones(3))
g(torch.ones(4))
g(torch.ones(5, dtype=torch.float64))
print("torch._dynamo" in sys.modules)
"""
COMPILERS = {"ours": "from dynamo_lite import compile", "torch": "from torch import compile"}
ARTIFACTS = "graph_breaks,recompiles,guards,graph_code,graph,graph_sizes,bytecode,dynamic,trace_source,side_effects"
LINE = re.compile(r"[VIWE]\d{4} [\d:.]+ \d+ (\S+\.py):\d+\](?: \[(\S+/\S+)\])?(?: \[__(\w+)\])? ?(.*)")


def start(folder, which, **environment):
    """The program as a process."""
    script = folder / f"with_{which}.py"
    script.write_text(PROGRAM.format(compiler=COMPILERS[which]))
    settings = {
        **os.environ,
        "DYNAMO_LITE_CACHE": "0",
        "DYNAMO_LITE_CAPTURE_SCALAR_OUTPUTS": "0",  # as in torch
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, str(script)], env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def written(process, folder):
    """What a process has logged: (compile id, artefact, text) per line; the folder is left out of paths."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    lines = [LINE.fullmatch(line) for line in err.splitlines()]
    assert all(lines), err
    assert out.strip() == str(not process.args[1].endswith("with_ours.py"))  # whether torch's compiler was loaded
    return [(m[2], m[3], re.sub(rf"{re.escape(str(folder))}/\w+\.py", "program.py", m[4])) for m in lines]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("logs")
    processes = {which: start(folder, which, TORCH_LOGS=ARTIFACTS) for which in COMPILERS}
    return {which: written(process, folder) for which, process in processes.items()}


def of(log, artifact):
    return [text for _, name, text in log if name == artifact]


def test_every_line_has_a_compile_id(logs):
    for log in logs.values():
        assert all(re.fullmatch(r"\d+/\d+(_\d+)?", compile_id) for compile_id, _, _ in log)
    # One function that breaks in the other and at item(), with its rests; one with three versions.
    assert {i.partition("_")[0] for i, *_ in logs["ours"]} == {"0/0", "1/0", "2/0", "3/0", "3/1", "3/2"}


def test_graph_breaks(logs):
    for log in logs.values():
        texts = of(log, "graph_breaks")
        first = [text for text in texts if text.startswith("Graph break in user code at ")]
        assert first == [f"Graph break in user code at program.py:{line}" for line in (7, 16)]
        assert sum(text.startswith("Graph Break Reason: ") for text in texts) >= 2
        begin = texts.index("User code traceback:")
        lines = [text.strip() for text in texts[begin + 1 : begin + 8]]
        assert [line for line in lines if not set(line) <= {"~", "^"}][:5] == [  # which differ between versions
            'File "program.py", line 23, in <module>',
            "f(torch.ones(3, 4), torch.ones(4, 5))",
            'File "program.py", line 14, in f',
            "z = helper(z)",
            'File "program.py", line 7, in helper',
        ]
    assert "  this value was made at " in "\n".join(of(logs["ours"], "graph_breaks"))


def test_advice_on_item_is_given_once(logs):
    for log in logs.values():
        texts = of(log, None)
        (first,) = [i for i, text in enumerate(texts) if text.startswith("Graph break from `Tensor.item()`")]
        assert texts[first + 1].strip().endswith(".config.capture_scalar_outputs = True")


def test_recompiles(logs):
    for which, log in logs.items():
        texts = of(log, "recompiles")
        heads = [text for text in texts if not text.startswith(" ")]
        assert heads == ["Recompiling function g in program.py:19"] * 2
        assert texts.count("    triggered by the following guard failure(s):") == 2
        reasons = [re.sub(r"\b\d+/", "n/", text.strip()) for text in texts if "expected" in text]
        assert [reason[:6] for reason in reasons[:1]] == ["- n/0:"]
        assert re.search(r"tensor 'x' .*expected .*3.*actual .*4", reasons[0])
        assert reasons[1].startswith(
            "- n/1: tensor 'x' dtype mismatch." if which == "torch" else "- n/1: tensor 'x' mismatch."
        )


def test_guards(logs):
    for log in logs.values():
        texts = of(log, "guards")
        assert {"GUARDS:", "TREE_GUARD_MANAGER:", "+- RootGuardManager"} <= set(texts)
        nodes = [text for text in texts if "GuardManager: source=L['x']" in text]
        checks = [text for text in texts if "TENSOR_MATCH" in text and "L['x']" in text]
        assert len(nodes) >= 4 and len(checks) >= 4
    assert any("# return torch.relu(x) + x.shape[0]  # program.py:21" in text for text in of(logs["ours"], "guards"))


def test_graph_code(logs):
    """The operators of `g`, whose versions are the same: names of symbols apart."""
    seen = {}
    for which, log in logs.items():
        texts = [re.sub(r"\bs\d+\b", "s", text) for text in of(log, "graph_code")]
        assert any(re.match(r" ===== __compiled_fn_\d+", text) for text in texts)
        begin = [i for i, text in enumerate(texts) if "# File: program.py:21 in g, code: return torch.relu(x)" in text]
        assert len(begin) == 3
        seen[which] = [texts[i + 1 : i + 4] for i in begin]
    assert seen["ours"] == seen["torch"]


def test_tables(logs):
    """torch 2.13 registers these artefacts and writes nothing."""
    table = of(logs["ours"], "graph")
    assert any(re.fullmatch(r"call_function +relu +<built-in method relu .*> +\(l_x_,\) +\{\}", text) for text in table)
    assert "relu: (3,)" in of(logs["ours"], "graph_sizes")


def test_bytecode(logs):
    for log in logs.values():
        texts = of(log, "bytecode")
        for which in ("ORIGINAL", "MODIFIED"):
            assert f"{which} BYTECODE g program.py line 19 " in texts
        assert any("LOAD_GLOBAL" in text and "relu" not in text for text in texts)


def test_dynamic(logs):
    for log in logs.values():
        texts = [re.sub(r"\bs\d+\b", "s", text) for _, name, text in log if name is None]
        made = [text for text in texts if text.startswith("create_symbol s = ")]
        assert [text.partition(" for ")[0] for text in made] == ["create_symbol s = 4", "create_symbol s = 5"]
        assert all("[2, int_oo]" in text for text in made)
        assert "create_env" in texts and "produce_guards" in texts


def test_lines_that_are_followed(logs):
    for log in logs.values():
        texts = of(log, "trace_source")
        assert any(text.startswith("TRACE starts_line program.py:13 in f") for text in texts)
        assert any(text.startswith("TRACE starts_line program.py:7 in helper") for text in texts)


def test_set_logs(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch, dynamo_lite\n"
        "torch._logging.set_logs(recompiles=True, graph_breaks=True)\n"
        "@dynamo_lite.compile(backend='eager')\n"
        "def f(x):\n"
        "    return x.relu() if x.sum() > 0 else x\n"
        "f(torch.ones(2))\n"
        "torch._logging.set_logs()\n"
        "f(torch.ones(3, dtype=torch.int32))\n"
    )
    settings = {name: value for name, value in os.environ.items() if name != "TORCH_LOGS"}
    settings["DYNAMO_LITE_CACHE"] = "0"
    done = subprocess.run([sys.executable, str(script)], env=settings, text=True, capture_output=True)
    assert done.returncode == 0 and done.stderr.count("Graph break in user code at") == 1
    assert "__recompiles" not in done.stderr


def records_of(text):
    """The records of a structured trace, in the form that `tlparse` documents: a line with a prefix and JSON, then lines of the payload,
    which begin with a tab."""
    records = []
    for line in text.splitlines():
        if line.startswith("\t"):
            records[-1][1].append(line[1:])
        elif line:
            prefix, _, data = line.partition("] ")
            assert re.fullmatch(r"V\d{4} [\d:.]+ \d+ \S+:\d+", prefix)
            records.append((json.loads(data), []))
    for record, payload in records:
        if "has_payload" in record:
            text = "\n".join(payload)
            assert hashlib.md5(text.encode(), usedforsecurity=False).hexdigest() == record["has_payload"]
    return [(record, "\n".join(payload)) for record, payload in records]


def test_structured_trace(tmp_path):
    process = start(tmp_path, "ours", TORCH_TRACE=str(tmp_path / "trace"))
    _, err = process.communicate()
    assert process.returncode == 0, err
    (file,) = (tmp_path / "trace").iterdir()
    assert file.name.startswith("dedicated_log_torch_trace_") and file.suffix == ".log"
    records = records_of(file.read_text())
    strings = {record["str"][1]: record["str"][0] for record, _ in records if "str" in record}
    kinds = defaultdict(set)
    for record, payload in records:
        if "frame_id" in record:
            kinds[record["frame_id"], record["frame_compile_id"]] |= {
                record["artifact"]["name"] if name == "artifact" else name for name in record
            }
        if "dynamo_start" in record:
            assert all({"line", "name", "filename"} <= entry.keys() for entry in record["dynamo_start"]["stack"])
            assert strings[record["dynamo_start"]["stack"][-1]["filename"]].endswith("ours.py")
    assert sorted(kinds) == [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1), (3, 2)]
    for found in kinds.values():
        assert {"dynamo_start", "dynamo_output_graph", "dynamo_guards", "compilation_metrics"} <= found
    assert "dynamo_graph_break_reason" in kinds[0, 0] and "recompile_reasons" in kinds[3, 1]
    assert "recompile_reasons" not in kinds[3, 0]
    metrics = [record["compilation_metrics"] for record, _ in records if "compilation_metrics" in record]
    assert [each["co_name"] for each in metrics[3:]] == ["g"] * 3 and metrics[0]["num_graph_breaks"] == 1
    assert all(each["graph_op_count"] and each["guard_count"] for each in metrics)
    assert metrics[0]["restart_reasons"] == ["DL001 data-dependent branch"]
    graphs = [
        (record["dynamo_output_graph"], payload) for record, payload in records if "dynamo_output_graph" in record
    ]
    assert graphs[3][0]["sizes"]["relu"] == [3] and "torch.relu(l_x_)" in graphs[3][1]


PRINTS = """import torch, dynamo_lite
@dynamo_lite.compile(backend="eager")
def f(x, d):
    print("once")
    d["a"] = 1
    return x + 1
f(torch.ones(2), {})
"""


def test_side_effects_name_delayed_calls(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PRINTS)
    settings = {**os.environ, "DYNAMO_LITE_CACHE": "0", "DYNAMO_LITE_STITCH": "1", "TORCH_LOGS": "side_effects"}
    done = subprocess.run([sys.executable, str(script)], env=settings, text=True, capture_output=True)
    assert done.stdout == "once\n"
    texts = [LINE.fullmatch(line)[4] for line in done.stderr.splitlines()]
    assert texts == ["Delayed call at program.py:4: print", "Mutating object of type dict (source name: L['d'])"]
