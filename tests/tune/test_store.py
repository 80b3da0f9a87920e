import multiprocessing
import os
import sqlite3
import warnings

import pytest

from dynamo_lite.tune.results import Choice, Store

CHOICE = Choice("inductor", 2.5, [("inductor", 4.0, "4.0 µs"), ("eager", 10.0, "10.0 µs"), ("other", None, "failed")])


def same(choice):
    return choice._replace(created=0.0) == CHOICE


def test_choices_outlive_the_process(tmp_path):
    path = tmp_path / "below" / "tune.sqlite3"
    Store(path).put("a", CHOICE)
    again = Store(path)
    assert same(again.get("a")) and again.get("b") is None
    assert list(again.all()) == ["a"]
    again.forget("a")
    assert Store(path).get("a") is None


def test_without_a_file():
    store = Store(None)
    store.put("a", CHOICE)
    assert same(store.get("a")) and list(store.all()) == ["a"]
    store.forget()
    assert store.get("a") is None


@pytest.mark.parametrize(
    "content", [b"no database at all, but long enough to have a header" * 20, b"SQLite format 3\0" + b"x" * 500]
)
def test_a_damaged_file_costs_one_warning(tmp_path, content):
    path = tmp_path / "tune.sqlite3"
    path.write_bytes(content)
    store = Store(path)
    with pytest.warns(UserWarning, match="the tuner's store .* is not used"):
        assert store.get("a") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.put("a", CHOICE)
        assert same(store.get("a"))
    assert path.read_bytes() == content


def test_a_damaged_entry_is_no_choice(tmp_path):
    path = tmp_path / "tune.sqlite3"
    Store(path).put("a", CHOICE)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE choices SET measured = '{'")
    with pytest.warns(UserWarning, match="is not used"):
        assert Store(path).get("a") is None


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file" / "tune.sqlite3")
    with pytest.warns(UserWarning, match="is not used"):
        store.put("a", CHOICE)
    assert same(store.get("a"))


def _write(path, name, count):
    store = Store(path)
    for i in range(count):
        store.put(f"{name}{i}", CHOICE)


def test_several_processes(tmp_path):
    path = tmp_path / "tune.sqlite3"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, name, 30)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [w.exitcode for w in writers] == [0, 0]
    assert len(Store(path).all()) == 60


def test_a_writer_that_is_killed(tmp_path):
    path = tmp_path / "tune.sqlite3"
    Store(path).put("a", CHOICE)
    context = multiprocessing.get_context("spawn")
    writer = context.Process(target=_write, args=(path, "b", 1_000_000))
    writer.start()
    while len(Store(path).all()) < 3:
        pass
    os.kill(writer.pid, 9)
    writer.join()
    store = Store(path)
    store.put("c", CHOICE)
    assert same(store.get("a")) and same(store.get("c")) and all(same(c) for c in store.all().values())
