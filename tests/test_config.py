import dataclasses
import pathlib
import re
import threading
import unittest

import pytest

import dynamo_lite
from dynamo_lite import config as public_config
from dynamo_lite.config import _DEFAULTS, ACCEPTED, ALIASES, Config, _from_environment, config, unknown_variables


def test_the_package_attribute_is_the_instance():
    import dynamo_lite.config as by_import

    assert dynamo_lite.config is config is public_config is by_import
    assert config.recompile_limit == 8


def test_every_accepted_key_is_a_key():
    assert ACCEPTED <= set(_DEFAULTS)
    assert set(ALIASES.values()) <= set(_DEFAULTS)
    assert not set(ALIASES) & set(_DEFAULTS)


def test_patch_as_context_manager_nests():
    with config.patch(recompile_limit=3, verbose=True):
        assert (config.recompile_limit, config.verbose) == (3, True)
        with config.patch("recompile_limit", 4):
            assert config.recompile_limit == 4
        with config.patch({"recompile_limit": 5}, verbose=False):
            assert (config.recompile_limit, config.verbose) == (5, False)
        assert (config.recompile_limit, config.verbose) == (3, True)
    assert (config.recompile_limit, config.verbose) == (8, False)


def test_patch_restores_after_an_exception_and_can_be_entered_again():
    patch = config.patch(recompile_limit=2)
    with pytest.raises(ZeroDivisionError), patch:
        1 / 0
    assert config.recompile_limit == 8
    with patch, patch:
        assert config.recompile_limit == 2
    assert config.recompile_limit == 8
    assert patch.changes == {"recompile_limit": 2}


def test_patch_as_decorator():
    @config.patch(recompile_limit=1)
    def inside(depth):
        return [config.recompile_limit, *(inside(depth - 1) if depth else [])]

    assert inside(2) == [1, 1, 1]
    assert config.recompile_limit == 8


def run_tests(case):
    """Run the tests of a class; how many ran, and those that failed."""
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    return result.testsRun, [text for _, text in result.failures + result.errors]


def test_patch_of_a_test_class():
    seen = []

    @config.patch(verbose=True)
    @config.patch(recompile_limit=3)
    class Case(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            super().setUpClass()
            seen.append((cls.__name__, config.recompile_limit))

        @classmethod
        def tearDownClass(cls):
            seen.append(("tearDownClass", config.recompile_limit))

        def setUp(self):
            super().setUp()
            seen.append(("setUp", config.recompile_limit))

        def test_inside(self):
            self.assertEqual((config.recompile_limit, config.verbose), (3, True))

    class Derived(Case):
        def test_too(self):
            self.assertEqual(config.recompile_limit, 3)

    assert isinstance(Case, type)
    assert run_tests(Case) == (1, [])
    assert seen == [("Case", 3), ("setUp", 3), ("tearDownClass", 3)]
    assert run_tests(Derived) == (2, [])
    assert (config.recompile_limit, config.verbose) == (8, False)


def test_patch_of_a_test_class_that_cannot_be_set_up():
    @config.patch(recompile_limit=3)
    class Case(unittest.TestCase):
        @classmethod
        def setUpClass(cls):
            raise ValueError("not today")

        def test_nothing(self):
            pass

    ran, errors = run_tests(Case)
    assert ran == 0
    assert "not today" in errors[0]
    assert config.recompile_limit == 8


def test_patch_of_another_class():
    with pytest.raises(TypeError, match="subclasses of unittest.TestCase, not the class Plain: decorate its methods"):

        @config.patch(recompile_limit=3)
        class Plain:
            pass


def test_aliases():
    with config.patch(cache_size_limit=3):
        assert config.recompile_limit == 3 == config.cache_size_limit
        config.cache_size_limit = 4
        assert config.recompile_limit == 4
    assert config.cache_size_limit == 8


@pytest.mark.parametrize(
    "use",
    [
        lambda: config.patch(recompil_limit=3),
        lambda: config.patch({"recompil_limit": 3}),
        lambda: config.patch("recompil_limit", 3),
        lambda: setattr(config, "recompil_limit", 3),
        lambda: config.recompil_limit,
        lambda: delattr(config, "recompil_limit"),
    ],
)
def test_spelling_mistakes_name_near_misses(use):
    with pytest.raises(AttributeError, match="no key 'recompil_limit'; did you mean recompile_limit or"):
        use()


def test_unknown_reads_and_deletion():
    assert not hasattr(config, "recompil_limit")
    assert getattr(config, "recompil_limit", 3) == 3
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del config.recompile_limit


def test_changed_repr_reset():
    settings = Config()
    settings.recompile_limit = 3
    assert settings.changed() == {"recompile_limit": 3}
    assert repr(settings) == "dynamo_lite.config(recompile_limit=3)"
    assert settings.to_dict()["recompile_limit"] == 3
    settings.reset()
    assert settings == Config()
    assert {field.name for field in dataclasses.fields(Config)} == set(settings.to_dict())


def test_settings_saved_and_loaded():
    settings, other = (
        Config(recompile_limit=3, stitch=False, capture_scalar_outputs=True, tune_store="ä"),
        Config(verbose=True),
    )
    other.load_config(settings.save_config())
    assert other == settings
    assert other.get_hash() == settings.get_hash() != Config().get_hash()
    copy = settings.get_config_copy()
    assert copy == settings.shallow_copy_dict() == settings.to_dict()
    settings.reset()
    assert copy["recompile_limit"] == 3
    settings.load_config(copy)
    assert settings == other
    settings.load_config({"cache_size_limit": 5})
    assert (settings.recompile_limit, settings.stitch) == (5, False)


def test_loading_settings_sets_all_or_none():
    settings = Config()
    for wrong, error in (
        ({"verbose": True, "nope": 1}, AttributeError),
        ({"verbose": True, "debug": "maybe"}, TypeError),
    ):
        with pytest.raises(error):
            settings.load_config(wrong)
    assert settings == Config()


def test_settings_as_assignments():
    settings = Config(recompile_limit=3, optimize_ddp="python_reducer")
    lines = settings.codegen_config()
    assert lines == "dynamo_lite.config.recompile_limit = 3\ndynamo_lite.config.optimize_ddp = 'python_reducer'"
    before = config.to_dict()
    try:
        exec(lines)
        assert (config.recompile_limit, config.optimize_ddp) == (3, "python_reducer")
    finally:
        config.load_config(before)


def test_environment():
    environ = {"DYNAMO_LITE_DEBUG": "1", "DYNAMO_LITE_RECOMPILE_LIMIT": "3", "DYNAMO_LITE_TIMING": "off", "OTHER": "1"}
    assert _from_environment(environ) == {"debug": True, "recompile_limit": 3, "timing": False}
    with pytest.warns(
        UserWarning, match=r"DYNAMO_LITE_RECOMPIL_LIMIT is no setting; did you mean DYNAMO_LITE_RECOMPILE_LIMIT\?"
    ):
        assert _from_environment({"DYNAMO_LITE_RECOMPIL_LIMIT": "3", "DYNAMO_LITE_SOAK": "1"}) == {}
    with pytest.warns(UserWarning, match="DYNAMO_LITE_DEBUG is ignored: expected 0 or 1, got 'maybe'"):
        assert _from_environment({"DYNAMO_LITE_DEBUG": "maybe"}) == {}


def test_environment_of_keys_with_texts():
    environ = {
        "DYNAMO_LITE_CAPTURE_BRANCHES": "cond",
        "DYNAMO_LITE_COMPILE_REGIONS": "auto",
        "DYNAMO_LITE_CAPTURE_SCALAR_OUTPUTS": "auto",
        "DYNAMO_LITE_OPTIMIZE_DDP": "python_reducer",
    }
    assert _from_environment(environ) == {
        "capture_branches": "cond",
        "compile_regions": "auto",
        "capture_scalar_outputs": None,
        "optimize_ddp": "python_reducer",
    }
    with pytest.warns(
        UserWarning,
        match="CAPTURE_BRANCHES is ignored: expected 'where' or 'cond' or True or False or None, got 'wher'",
    ):
        assert _from_environment({"DYNAMO_LITE_CAPTURE_BRANCHES": "wher"}) == {}
    with pytest.warns(UserWarning, match="RECOMPILE_LIMIT is ignored: expected an int, 1 or more, got 'few'"):
        assert _from_environment({"DYNAMO_LITE_RECOMPILE_LIMIT": "few"}) == {}


def test_limits_are_at_least_one():
    with pytest.raises(TypeError, match="config.recompile_limit=0: expected an int, 1 or more"):
        Config().recompile_limit = 0
    with pytest.warns(UserWarning, match="RECOMPILE_LIMIT is ignored: expected an int, 1 or more, got '-3'"):
        assert _from_environment({"DYNAMO_LITE_RECOMPILE_LIMIT": "-3"}) == {}


def test_texts_that_are_no_choice():
    with pytest.raises(TypeError, match="config.capture_branches"):
        Config().capture_branches = "wher"


def test_different_keys_in_two_threads():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with config.patch(verbose=True):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with config.patch(recompile_limit=2):
        thread.start()
        assert entered.wait(10)
    assert config.recompile_limit == 8 and config.verbose
    leave.set()
    thread.join()
    assert not config.verbose


def test_every_other_key_is_used():
    package = pathlib.Path(dynamo_lite.__file__).parent
    sources = "".join(path.read_text() for path in package.rglob("*.py") if path.name != "config.py")
    unused = {key for key in _DEFAULTS if key not in ACCEPTED and not re.search(rf"\bconfig\.{key}\b", sources)}
    assert unused == set()


def test_patch_refuses_values_before_it_is_entered():
    with pytest.raises(TypeError, match="config.recompile_limit='many': expected an int"):
        config.patch(recompile_limit="many")


def generator():
    yield 1


async def coroutine():
    pass


async def asynchronous_generator():
    yield 1


@pytest.mark.parametrize("function", [generator, coroutine, asynchronous_generator])
def test_functions_that_run_in_steps_are_not_decorated(function):
    """What runs between the steps would be under the patch, and steps of two would leave one's values behind."""
    with pytest.raises(
        TypeError, match=f"config.patch decorates no generators or coroutines such as {function.__name__}"
    ):
        config.patch(recompile_limit=3)(function)


def test_variables_of_the_environment_with_old_names():
    assert _from_environment({"DYNAMO_LITE_CACHE_SIZE_LIMIT": "4"}) == {"recompile_limit": 4}
    both = {"DYNAMO_LITE_CACHE_SIZE_LIMIT": "4", "DYNAMO_LITE_RECOMPILE_LIMIT": "5"}
    assert _from_environment(both) == {"recompile_limit": 5}
    assert unknown_variables(both) == []
    with pytest.warns(UserWarning, match="CACHE_SIZE_LIMIT is ignored: expected an int, 1 or more, got '0'"):
        assert _from_environment({"DYNAMO_LITE_CACHE_SIZE_LIMIT": "0"}) == {}


@pytest.mark.parametrize("key", ["max_steps", "max_idle_steps", "max_inline_depth", "symbolic_effort"])
def test_limits_of_one_analysis_are_at_least_one(key):
    for value in (0, -1):
        with pytest.raises(TypeError, match=f"config.{key}={value}: expected .*1 or more"):
            config.patch({key: value})
    config.patch({key: 1})
