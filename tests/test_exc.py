import ast
import copy
import pathlib
import pickle
import traceback

import pytest

import dynamo_lite
from dynamo_lite import exc
from dynamo_lite.breaks import BREAKS, UserFrame, format_break, slug_of
from dynamo_lite.exc import Unsupported, unsupported

PACKAGE = pathlib.Path(dynamo_lite.__file__).parent
RAISERS = {"unsupported", "Unsupported"}


def slugs_in(path):
    """(line, slug) of every call of a raiser in a file whose first argument is a text."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        first = node.args[0]
        if name in RAISERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.lineno, first.value


def test_every_slug_raised_is_in_the_table():
    unknown = [
        f"{path.relative_to(PACKAGE)}:{line}: {slug}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, slug in slugs_in(path)
        if slug not in BREAKS
    ]
    assert unknown == []


def test_numbers_and_texts():
    numbers = [kind.number for kind in BREAKS.values()]
    assert len(set(numbers)) == len(numbers)
    titles = [kind.title for kind in BREAKS.values()]
    assert len(set(titles)) == len(titles)
    for slug, kind in BREAKS.items():
        assert slug == slug.lower() and " " not in slug
        assert kind.code == f"DL{kind.number:03d}"
        for text in kind[1:]:
            assert text and "\n" not in text and len(text) <= 110 and not text.endswith(".")


def test_slug_of():
    assert slug_of("DL001") == slug_of("1") == slug_of("dl001") == slug_of("data-dependent-branch")
    with pytest.raises(KeyError):
        slug_of("DL999")


def test_message_with_line_and_caret():
    error = Unsupported("data-dependent-branch", "b.sum() < 0")
    error.user_stack = (
        UserFrame("model.py", 3, "outer"),
        UserFrame("model.py", 8, "forward", "    if b.sum() < 0:", 7, 18, 8),
    )
    assert str(error) == (
        "DL001 data-dependent branch: b.sum() < 0\n"
        '  File "model.py", line 8, in forward\n'
        "    if b.sum() < 0:\n"
        "       ^^^^^^^^^^^\n"
        "  why: which side runs depends on tensor data, which is unknown during capture\n"
        "  do:  move the test, use torch.where or torch.cond, or, if the sides allow it, set config.capture_branches = True\n"
        "  set: dynamo_lite.config.capture_branches = True, or DYNAMO_LITE_CAPTURE_BRANCHES=1\n"
        "  see: docs/breaks.md#dl001 (python -m dynamo_lite explain DL001)"
    )
    error.origin = UserFrame("model.py", 5, "forward", "    b = load()")
    assert str(error).split("\n")[4] == "  this value was made at model.py:5: b = load()"
    error.origin = UserFrame("model.py", 8, "forward")
    assert "was made" not in str(error)
    assert error.number == 1 and error.title == "data-dependent branch" == error.gb_type
    assert error.why and error.what_to_do and error.msg == str(error)


def test_caret_counts_characters_and_stops_at_the_end_of_the_line():
    line = '    é = f("ü", b.sum(), '
    start = len('    é = f("ü", '.encode())
    caret = format_break("data-dependent-branch", "", [UserFrame("m.py", 1, "f", line, start, 4, 3)]).split("\n")[3]
    assert caret == "    " + " " * len('é = f("ü", ') + "^" * len("b.sum(),")
    unknown = format_break("data-dependent-branch", "", [UserFrame("no such file", 1, "f")])
    assert len(unknown.split("\n")) == 6


def test_places_are_what_the_traceback_module_takes():
    line = fn.__code__.co_firstlineno + 1
    place = UserFrame(__file__, line, "fn", "", 11, 16, line)
    (told,) = traceback.format_list([place])
    assert told.startswith(f'  File "{__file__}", line {line}, in fn\n    return x + 1\n')
    assert traceback.StackSummary.from_list([place]).format() == [told]
    assert (place.line, place.whole_line, place.name) == ("return x + 1", "    return x + 1", place.function)
    again = pickle.loads(pickle.dumps(place))
    assert again == place == copy.copy(place) and hash(again) == hash(place)
    assert place != UserFrame(__file__, line, "fn") and place == traceback.FrameSummary(__file__, line, "fn")


def fn(x):
    return x + 1


@pytest.mark.parametrize("slug", BREAKS)
def test_every_message_fits_in_ten_lines(slug):
    frame = UserFrame("m.py", 1, "f", "    x = g(y)", 8, 12, 1)
    text = format_break(slug, "some\nlong " * 60, [frame], UserFrame("m.py", 3, "f"))
    settings = BREAKS[slug].settings
    assert all(hasattr(dynamo_lite.config, setting.split(".")[2].split()[0].rstrip(",")) for setting in settings)
    assert len(text.split("\n")) == 8 + len(settings) <= 10 and all(len(line) < 300 for line in text.split("\n"))


def test_unsupported_raises_with_its_cause():
    cause = ValueError("inner")
    with pytest.raises(Unsupported, match="DL022 .*: math.foo") as info:
        unsupported("call-c-function", "math.foo", cause)
    assert info.value.__cause__ is cause is info.value.cause
    with pytest.raises(KeyError):
        unsupported("no-such-slug")


def test_unsupported_can_be_pickled():
    copy = pickle.loads(pickle.dumps(Unsupported("call-print", "print")))
    assert (copy.slug, copy.context) == ("call-print", "print")


def test_names_and_constructors_of_torch():
    failed = exc.BackendCompilerFailed(lambda gm, inputs: None, ValueError("x"), None)
    assert failed.backend_name == "<lambda>" and str(failed) == "backend='<lambda>' raised:\nValueError: x"
    user = exc.UserError(exc.UserErrorType.DYNAMIC_DIM, "dim 0")
    assert user.error_type is exc.UserErrorType.DYNAMIC_DIM and str(user) == "dim 0"
    assert "eager, inductor" in str(exc.InvalidBackend("x", ["eager", "inductor"]))
    assert exc.Restart(restart_reason="int").restart_reason == "int"
    for name in (
        "InternalTorchDynamoError SkipFrame RecompileError RecompileLimitExceeded FailOnRecompileLimitHit "
        "ResetRequired RestartAnalysis TorchRuntimeError UncapturedHigherOrderOpError NotConstant"
    ).split():
        assert issubclass(getattr(exc, name), exc.TorchDynamoException)
    assert issubclass(exc.TorchDynamoException, RuntimeError)


@pytest.mark.parametrize(
    "text, said",
    [
        ("shapes differ. Expected 2, got 3.", "shapes differ. Expected 2, got 3."),
        ("Could not guard on u0 (hint: none). (None)\n\nCaused by: x", "Could not guard on u0 (hint: none)"),
        ("can't call .item() here. " + "please rewrite it " * 9, "can't call .item() here"),
    ],
)
def test_the_gist_of_an_error_of_torch(text, said):
    assert exc.gist(RuntimeError(text)) == said


@pytest.mark.parametrize("end_lineno", [2, 3])
def test_frames_with_a_recorded_line_are_those_of_traceback(end_lineno):
    frame = UserFrame("gone.py", 2, "f", "    y = g(x,", 8, 10, end_lineno)
    carets = "^^" if end_lineno == 2 else "^^^^"
    assert traceback.format_list([frame]) == [f'  File "gone.py", line 2, in f\n    y = g(x,\n        {carets}\n']
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        kept = pickle.loads(pickle.dumps(frame, protocol))
        assert [getattr(kept, name) for name in UserFrame.__match_args__] == [
            getattr(frame, name) for name in UserFrame.__match_args__
        ]
