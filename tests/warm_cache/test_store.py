"""The files: whole or not there, damaged and foreign ones ignored with one warning, safe with several processes, movable."""

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.__main__ import main
from dynamo_lite.record import log
from dynamo_lite.warm_cache import directory, files, keys, store
from tests.helpers import processes
from tests.warm_cache.cache_programs import Run, load, new_process

TEXT = "import torch\ndef f(x): return x.sin() + 1\ndef main(): return f, (torch.ones(3),)\n"


@pytest.fixture
def warnings(caplog, monkeypatch):
    monkeypatch.setattr(store, "_warned", threading.Event())
    caplog.set_level(logging.WARNING, logger="dynamo_lite")
    return lambda: [r.getMessage() for r in caplog.records if "cache" in r.getMessage()]


def test_where_it_is(monkeypatch, tmp_path):
    with config.patch(cache_dir=""):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert directory() == tmp_path / "dynamo_lite"
        monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert directory() == tmp_path / "home" / ".cache" / "dynamo_lite"
    with config.patch(cache_dir=str(tmp_path / "mine")):
        assert directory() == tmp_path / "mine"


def test_switched_off(own_cache):
    with config.patch(cache=False):
        run = Run(prog=TEXT)
    assert run.is_right and not own_cache.exists() and (run.hits, run.misses) == (0, 0)


DAMAGES = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-10],
    "longer": lambda data: data + b"x",
    "one bit": lambda data: data[:-10] + bytes([data[-10] ^ 1]) + data[-9:],
    "another format": lambda data: data.replace(b"cache 3", b"cache 9", 1),
    "no header": lambda data: data[: data.index(b"\n") + 1],
    "header that is no JSON": lambda data: data.replace(b"{", b"[", 1),
    "text": lambda data: b"hello\n",
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged(name, warnings):
    Run(prog=TEXT)
    (path,) = files()
    path.write_bytes(DAMAGES[name](path.read_bytes()))
    run = Run(prog=TEXT)
    assert run.is_right and run.hits == 0
    Run(prog=TEXT)
    assert len(warnings()) <= 1 and (run.kept == 0 or files())
    assert main(["cache", "verify"]) in (0, 1)


def test_builds_that_nobody_uses_any_more_go(own_cache):
    entries = {}
    for name, days in (("old", store.MAX_UNUSED_DAYS + 1), ("recent", store.MAX_UNUSED_DAYS - 1)):
        store.write(own_cache / name / "key", "0.entry", b"")
        entries[name] = own_cache / name / "key" / "0.entry"
        then = time.time() - days * 86_400
        os.utime(own_cache / name, (then, then))
    (own_cache / "tune.sqlite3").write_bytes(b"not ours to remove")
    Run(prog=TEXT)
    assert not entries["old"].exists() and entries["recent"].exists() and len(files()) == 2
    assert (own_cache / "tune.sqlite3").exists()


def test_damage_is_reported_once(warnings):
    Run(prog=TEXT)
    (path,) = files()
    other = path.with_name("0" * 32 + ".entry")
    other.write_bytes(b"nonsense")
    assert Run(prog=TEXT).hits == 1 and Run(prog=TEXT).hits == 1
    assert len(warnings()) == 1 and "no file of this cache" in warnings()[0]
    assert main(["cache", "verify"]) == 1


def test_files_of_another_version_are_not_damaged(capsys):
    Run(prog=TEXT)
    (path,) = files()
    path.with_name("0" * 32 + ".entry").write_bytes(path.read_bytes().replace(b"cache 3", b"cache 9", 1))
    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == "2 files, 0 damaged, 1 of another version\n"


def test_payload_of_something_else(warnings):
    """The digest is right, but it is no version."""
    Run(prog=TEXT)
    (path,) = files()
    about = store.unpack(path.read_bytes()).about
    import marshal

    for payload in (b"", b"\xff", marshal.dumps([1, 2]), marshal.dumps({"nodes": 1}), marshal.dumps({})):
        path.write_bytes(store.pack(about, payload))
        assert Run(prog=TEXT).is_right
        for made in files():
            if made != path:
                made.unlink()


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")
def test_file_of_another_user(warnings):
    Run(prog=TEXT)
    (path,) = files()
    os.chown(path, 12345, -1)
    run = Run(prog=TEXT)
    assert run.is_right and run.hits == 0 and "another user" in warnings()[0]


def test_place_that_cannot_be_written(tmp_path, warnings):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with config.patch(cache_dir=str(blocked / "cache")):
        run = Run(prog=TEXT)
        assert run.is_right and run.kept == 0
        assert Run(prog=TEXT).is_right
    assert len(warnings()) == 1


def test_another_build(monkeypatch):
    Run(prog=TEXT)
    monkeypatch.setattr(keys, "build", lambda: "another")
    run = Run(prog=TEXT)
    assert run.is_right and run.hits == 0


def test_facts_of_the_build():
    facts = keys.facts()
    assert {"python", "torch", "dynamo_lite", "dynamo_lite source", "processor", "accelerators"} <= facts.keys()
    json.dumps(facts)


def test_it_can_be_moved(own_cache, tmp_path):
    Run(prog=TEXT)
    shutil.move(own_cache, tmp_path / "elsewhere")
    with config.patch(cache_dir=str(tmp_path / "elsewhere")):
        assert Run(prog=TEXT).hits == 1
    for path in (tmp_path / "elsewhere").rglob("*.entry"):
        assert str(own_cache).encode() not in path.read_bytes()


def test_sources_can_be_moved():
    """The same program in another folder is the same program, and its errors show the new one."""
    text = TEXT.replace("+ 1", "+ 1 if x.shape[0] < 9 else x @ x.reshape(2, 5)")
    Run(prog=text)
    import dynamo_lite
    from tests.warm_cache.cache_programs import load

    new_process()
    module = load(prog=text)
    moved = module.f.__code__.replace(co_filename="/moved/prog.py")
    module.f.__code__ = moved
    fn, args = module.main()
    from dynamo_lite.record import STATS

    STATS.reset()
    dynamo_lite.compile(fn, backend="eager")(*args)
    assert STATS.cache_hits == 1


def test_oldest_go_first(monkeypatch):
    monkeypatch.setattr(store, "MAX_PER_KEY", 3)
    text = TEXT.replace("torch.ones(3)", "torch.ones({})")
    for n in range(2, 8):
        Run(prog=text.format(n))
    assert len(files()) == 3


def test_threads_write_at_once(own_cache):
    errors = []

    def work(i):
        try:
            for n in range(20):
                store.put("build", "key", {"n": n}, b"x" * (n + 1))
                for _, item in store.find("build", "key"):
                    assert set(item.payload) == {ord("x")}
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert not list(own_cache.rglob(".new-*"))


# -- the command line


def test_command_line(own_cache, tmp_path, capsys):
    Run(prog=TEXT)
    assert main(["cache", "ls"]) == 0
    listed = capsys.readouterr().out
    assert "f /somewhere/prog.py:2" in listed and "2 operators" in listed and "not used here" not in listed
    assert main(["cache", "verify"]) == 0
    assert "1 file, 0 damaged" in capsys.readouterr().out
    archive = str(tmp_path / "a.tar.gz")
    assert main(["cache", "export", archive]) == 0
    assert main(["cache", "clear"]) == 0
    assert not files() and Run(prog=TEXT).hits == 0
    assert main(["cache", "clear"]) == 0
    assert main(["cache", "import", archive]) == 0
    assert "1 file taken over, 0 refused" in capsys.readouterr().out
    assert Run(prog=TEXT).hits == 1


def test_archive_that_reaches_out(own_cache, tmp_path, capsys):
    import io
    import tarfile

    Run(prog=TEXT)
    data = files()[0].read_bytes()
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("../../out.entry", "/tmp/a/out.entry", "a/b/c/d.entry", "a/b/other.entry", "a/../x.entry"):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    assert main(["cache", "import", str(archive)]) == 1
    told = capsys.readouterr()
    assert "0 files taken over, 5 refused" in told.out
    assert "'../../out.entry': it has no place in a cache\n" in told.err and told.err.count("\n") == 5
    assert main(["cache", "import", str(tmp_path / "missing")]) == 1
    assert "No such file" in capsys.readouterr().err
    (tmp_path / "text").write_text("no archive")
    assert main(["cache", "import", str(tmp_path / "text")]) == 1
    assert capsys.readouterr().err == f"{tmp_path / 'text'} is no archive that `cache export` has written\n"


# -- real processes

SCRIPT = """
import json, sys
import torch
import dynamo_lite
from dynamo_lite.record import STATS, log

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)
        self.kinds = {"relu", "gelu"}

    def forward(self, x):
        y = self.norm(self.linear(x))
        return torch.relu(y) if "relu" in self.kinds else y

class Settings:
    scale = 1.0

    def __init__(self):
        self.scale = 0.5

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
        self.settings = Settings()

    def forward(self, x):
        names = dir(self.settings)  # followed through a polyfill, which a warm process has not imported
        for block in self.blocks:
            x = x + block(x)
        x = x * getattr(self.settings, names[-1])
        print("", end="")
        return x.sum() * SCALE

SCALE = 2.0
torch.manual_seed(0)
model = Model()
x = torch.randn(2, 4)
loss = dynamo_lite.compile(model, backend=sys.argv[1])(x)
loss.backward()
expected = model(x)
torch.testing.assert_close(loss, expected)
gradients = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
expected.backward()
for p, g in zip(model.parameters(), gradients):
    torch.testing.assert_close(p.grad, g)
print(json.dumps({"hits": STATS.cache_hits, "misses": STATS.cache_misses, "kept": STATS.cache_kept,
                  "refused": dict(STATS.cache_refusals), "mismatches": dict(STATS.cache_mismatches)}))
"""


def start(script, cache, *args):
    environment = {
        **os.environ,
        "DYNAMO_LITE_CACHE": "1",
        "DYNAMO_LITE_CACHE_DIR": str(cache),
        "DYNAMO_LITE_DEBUG": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    environment.pop("PYTHONHASHSEED", None)  # each process has another one; so it is started anew, not forked
    return subprocess.Popen(
        [sys.executable, str(script), *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def test_processes(tmp_path):
    """Two that start at once, a third that is warm, one whose program has changed."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    cache = tmp_path / "shared"
    both = [finish(p) for p in [start(script, cache, "aot_eager"), start(script, cache, "aot_eager")]]
    assert all(r["hits"] + r["misses"] >= 2 for r in both) and not any(r["refused"] for r in both)
    warm = finish(start(script, cache, "aot_eager"))
    assert warm["misses"] == 0 and warm["hits"] >= 2, warm
    script.write_text(SCRIPT.replace("x + block(x)", "x - block(x)"))
    changed = finish(start(script, cache, "aot_eager"))
    assert changed["misses"] == 1 and changed["hits"] == 1  # what comes after the break is the same


def test_reports_name_the_breaks_of_kept_versions(own_cache):
    text = (
        "import torch\ndef f(x): return (x + 1) * (2 if x.sum() > 0 else 3)\ndef main(): return f, (torch.ones(3),)\n"
    )
    first, second = Run(main=text), Run(main=text)
    assert second.hits == 2 and second.is_right
    breaks = [[b.slug for b in run.frames["f"].breaks] for run in (first, second)]
    assert breaks == [["data-dependent-branch"]] * 2


def test_kept_versions_know_which_lines_decided_by_sizes(own_cache):
    """So that a recompile limit is used up once, by what leads there, in a warm process too (`recompile_policy.deciders`)."""
    text = """
import torch
def loop(x):
    for i in range(x.shape[0]):
        x = x + i
    return x if x.shape[1] > 2 else -x
def f(x): return loop(x)
def main(): return f, (torch.ones(3, 4),)
"""
    with config.patch(assume_static_by_default=False):
        first, second = [Run(main=text).frames["f"] for _ in range(2)]
    assert second.from_cache and not first.from_cache
    assert first.size_lines == second.size_lines
    assert [f.name for f in second.size_lines[first.filename, 4]] == ["loop", "f"]
    assert [(s.text, s.value, s.user[1]) for s in second.specializations] == [("x.size(0)", 3, 4)]


def test_reset_forgets_what_this_process_has_kept(own_cache):
    fn, _ = load(prog=TEXT).main()
    compiled = dynamo_lite.compile(fn, backend="eager")

    def versions(*sizes):
        """How many versions calls with these sizes make, and how many of them come from the cache."""
        before = len(log.snapshot())
        for size in sizes:
            compiled(torch.ones(size))
        made = log.snapshot()[before:]
        return len(made), sum(frame.from_cache for frame in made)

    new_process()
    assert versions(3, 4, 5) == (2, 0)
    dynamo_lite.reset()
    assert versions(3, 4, 5) == (2, 0)  # not one, from the cache, for all sizes
    dynamo_lite.reset_code_caches()
    fn, _ = load(prog=TEXT).main()
    assert versions(3)[0] == 1
    new_process()
    assert versions(3, 4, 5)[1] > 0


COUNTS = """
import sys, torch, dynamo_lite
from dynamo_lite.record import log

@dynamo_lite.compile(backend="eager")
def f(x):
    print(end="")
    return x * 2

for size in map(int, sys.argv[1:]):
    f(torch.ones(size))
print([(frame.name, frame.entry_index, len(frame.graphs)) for frame in log.snapshot()])
"""


def test_counts_are_the_same_in_each_process_with_the_cache_off(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(COUNTS)
    environment = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(cache, *sizes):
        done = processes.run([script, *sizes], env={**environment, "DYNAMO_LITE_CACHE": cache})
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("0", "3", "4", "5") == run("0", "3", "4", "5") == run("1", "3", "4", "5")
    assert len(run("1", "5", "6")) < len(run("0", "5", "6"))  # what varies is known
