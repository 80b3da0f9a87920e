"""C++ kernels of one graph compiled in one run of the compiler."""

import functools
import os
import subprocess
import sys
import threading

import pytest
import torch
from torch._inductor import config, cpu_vec_isa
from torch._inductor.async_compile import AsyncCompile

import dynamo_lite
from dynamo_lite.backends.compiled import artifact, kernels, vec_isa
from dynamo_lite.backends.inductor import COMPILING, inductor, is_inductor_supported

pytestmark = pytest.mark.skipif(not is_inductor_supported(), reason="no C++ compiler")

ORIGINAL = AsyncCompile.cpp_pybinding, AsyncCompile.wait
CONSTANTS = iter(range(1, 1000))


def program():
    """A function with four kernels, which no other test has, between products."""
    constant = next(CONSTANTS) + 0.123

    def f(x):
        x = (x @ x).sin() * constant
        x = (x @ x).cos() * constant
        x = (x @ x).tanh() + constant
        return (x @ x).sigmoid() - x.sum(0) * constant

    return f


class Kept:
    """The backend; `compiled`: what it has made."""

    def __call__(self, gm, inputs):
        self.compiled = inductor(gm, inputs)
        return self.compiled

    @property
    def kernels(self):
        """The functions in the generated module."""
        compiled = getattr(self.compiled, "compiled", self.compiled)
        _, graph = artifact.records_of(compiled, here=True)
        names = graph.current_callable.__func__.__globals__
        return [value for name, value in names.items() if name.startswith("cpp_fused")]

    @property
    def libraries(self):
        return [kernels.library_of(kernel) for kernel in self.kernels]


def run(f, *, threads):
    backend = Kept()
    x = torch.linspace(-1, 1, 16).reshape(4, 4)
    with torch.no_grad(), config.patch(compile_threads=threads):
        torch.testing.assert_close(dynamo_lite.compile(f, backend=backend)(x), f(x))
    assert (AsyncCompile.cpp_pybinding, AsyncCompile.wait) == ORIGINAL
    return backend


@pytest.mark.parametrize("threads", [1, 2])
def test_as_many_libraries_as_workers(threads):
    backend = run(program(), threads=threads)
    assert len(backend.kernels) == 4
    assert len({path for path, _ in backend.libraries}) == threads
    assert len(set(backend.libraries)) == 4
    assert {entry for _, entry in backend.libraries} == {f"kernel_{i}" for i in range(4 // threads)}


def test_no_library_has_too_many(monkeypatch):
    monkeypatch.setattr(kernels, "MOST", 3)
    backend = run(program(), threads=1)
    assert sorted(entry for _, entry in backend.libraries) == ["kernel_0", "kernel_0", "kernel_1", "kernel_1"]


def test_one_kernel_is_compiled_as_ever():
    constant = next(CONSTANTS) + 0.5
    backend = run(lambda x: x.sin() * constant, threads=1)
    ((_, entry),) = backend.libraries
    assert entry == "kernel"


def test_kernels_that_do_not_compile_together(monkeypatch):
    monkeypatch.setattr(kernels, "together", lambda texts: "#error no\n")
    backend = run(program(), threads=1)
    assert [entry for _, entry in backend.libraries] == ["kernel"] * 4


def test_torch_is_as_it_was_when_the_last_thread_leaves():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with COMPILING:
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with COMPILING:
        thread.start()
        assert inside.wait(60)
    assert AsyncCompile.cpp_pybinding is not ORIGINAL[0]
    leave.set()
    thread.join()
    assert (AsyncCompile.cpp_pybinding, AsyncCompile.wait) == ORIGINAL


class TestVectorInstructions:
    """The sets are stubs: the first one works, by `tried` in which order they were asked."""

    @pytest.fixture
    def sets(self, monkeypatch):
        class Set(str):
            def __bool__(self):
                tried.append(str(self))
                return self != "broken"

        tried = []
        monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", [Set("unknown"), *map(Set, ("broken", "a b", "a"))])
        monkeypatch.setattr(cpu_vec_isa, "x86_isa_checker", lambda: ["broken", "a", "b"])
        monkeypatch.setattr(
            cpu_vec_isa, "valid_vec_isa_list", functools.cache(cpu_vec_isa.valid_vec_isa_list.__wrapped__)
        )
        yield tried
        vec_isa._best.cache_clear()

    def test_only_the_best_is_tried(self, sets):
        for _ in range(2):
            with COMPILING:
                assert cpu_vec_isa.pick_vec_isa() == "a b"
        assert sets == ["broken", "a b"]
        assert cpu_vec_isa.valid_vec_isa_list() == ["a b", "a"]

    def test_all_where_a_setting_chooses(self, sets, monkeypatch):
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", "a")
        with COMPILING:
            assert cpu_vec_isa.valid_vec_isa_list() == ["a b", "a"]
        monkeypatch.delenv("ATEN_CPU_CAPABILITY")
        with COMPILING, config.patch("cpp.simdlen", 256):
            assert cpu_vec_isa.valid_vec_isa_list() == ["a b", "a"]


def test_includes_come_first():
    texts = ["  #include <a.h>\nint x;\n#  include <b.h>\n", "#include <a.h>\nvoid kernel();\n"]
    text = kernels.together(texts)
    assert text.startswith("#include <a.h>\n#  include <b.h>\n#define kernel kernel_0\n")
    assert text.count("include") == 2
    assert "namespace of_kernel_1 {\n\nvoid kernel();\n\n}\n#undef kernel\n" in text


def test_a_library_that_was_linked_in_part_is_made_again(tmp_path):
    """A process that is killed while it links leaves such a file in Inductor's cache."""
    script = "from tests.backends import test_kernels as t; print(t.run(t.program(), threads=1).libraries[0][0])"
    settings = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}

    def path():
        command = [sys.executable, "-W", "error::UserWarning:dynamo_lite", "-c", script]
        done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        assert "failed" not in done.stderr
        return done.stdout.split()[-1]

    library = path()
    os.truncate(library, 0)
    assert path() == library
    assert os.path.getsize(library) > 0
