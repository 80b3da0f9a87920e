"""`assert_captured`, and the plugin's lock files."""

import re

import pytest
import torch

from dynamo_lite.testing import assert_captured, capture_of

pytest_plugins = ["pytester"]

X = torch.ones(3)


def whole(x):
    return x.sin() + 1


def broken(x):
    y = x + 1
    print("here")
    return y * 2


def test_what_is_captured_as_expected():
    captured = assert_captured(whole, (X,))
    assert captured.graphs == [2] and captured.text() == "1 graph\n0 breaks\n0 recompilations\ngraph 0: 2 operators\n"
    assert_captured(broken, (X,), graphs=2, breaks=1)
    assert_captured(broken, (X,), graphs=2, breaks=None)
    assert_captured(lambda x, *, scale: x * scale, (X,), {"scale": 2.0})


def test_a_break_fails_and_says_what_to_do():
    with pytest.raises(AssertionError) as failure:
        assert_captured(broken, (X,))
    text = str(failure.value)
    assert text.startswith(
        "captured in 2 graphs, 1 break, 0 recompilations; expected 1 graph, 0 breaks, 0 recompilations\n"
    )
    assert "DL020" in text and 'print("here")' in text and "test_contract.py" in text


def test_calls_that_follow():
    sizes = [(torch.ones(n),) for n in (4, 5, 6)]
    captured = assert_captured(whole, (X,), then=sizes, recompiles=1, graphs=2)
    assert captured.dynamic == ["l_x_.size(0)"]
    with pytest.raises(
        AssertionError, match=r"1 recompilation; .*\nrecompiled because x: expected shape \(3\), found shape \(4\)"
    ):
        assert_captured(whole, (X,), then=sizes, graphs=None)


def test_nothing_of_earlier_captures_is_used():
    assert capture_of(whole, (X,)).graphs == capture_of(whole, (X,)).graphs == [2]


def test_lock_files(pytester):
    source = """
        import torch

        def fn(x):
            y = x + 1
            return y.sin()

        class TestModel:
            def test_it(self, capture_lock):
                capture_lock(fn, (torch.ones(3),))
                capture_lock(fn, (torch.ones(3),), then=[(torch.ones(4),)], name="sizes")
    """
    options = ("-p", "dynamo_lite_pytest", "-p", "no:cacheprovider", "-q")
    if _installed():
        options = options[2:]
    path = pytester.makepyfile(source)
    missing = pytester.runpytest_inprocess(*options)
    missing.assert_outcomes(failed=1)
    missing.stdout.fnmatch_lines(
        ["there is no */captures/test_lock_files.TestModel.test_it.lock: pytest --dynamo-lite-update writes it"]
    )
    pytester.runpytest_inprocess(*options, "--dynamo-lite-update").assert_outcomes(passed=1)
    assert (path.parent / "captures" / "test_lock_files.TestModel.test_it.lock").read_text() == (
        "1 graph\n0 breaks\n0 recompilations\ngraph 0: 2 operators\n"
    )
    assert (
        "symbolic: l_x_.size(0)"
        in (path.parent / "captures" / "test_lock_files.TestModel.test_it.sizes.lock").read_text()
    )
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=1)
    path.write_text(re.sub(r"y = x \+ 1", r"y = x + 1\n    print('a leaf')", path.read_text()))
    changed = pytester.runpytest_inprocess(*options)
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        [
            "what is captured has changed:",
            "-1 graph",
            "-0 breaks",
            "+2 graphs",
            "+1 break",
            "+break 0: DL020 * in fn: print('a leaf')",
        ]
    )


def test_two_tests_of_one_lock_file(pytester):
    pytester.makepyfile("""
        import pytest, torch

        @pytest.mark.parametrize("sign", ["a+b", "a*b"])
        def test_it(sign, capture_lock):
            capture_lock(lambda x: x + 1, (torch.ones(3),))
    """)
    options = () if _installed() else ("-p", "dynamo_lite_pytest")
    done = pytester.runpytest_inprocess(*options, "-p", "no:cacheprovider", "-q", "--dynamo-lite-update")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        ["*test_it-a-b.lock is the lock of *::test_it?a+b? already: give one of them another name"]
    )


def _installed():
    from importlib.metadata import entry_points

    return "dynamo_lite" in {point.name for point in entry_points(group="pytest11")}
