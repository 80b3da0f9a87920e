"""Functions with one code object and several dictionaries of globals. Needs no torch."""

import types

from dynamo_lite import _eval_frame
from dynamo_lite.config import config
from dynamo_lite.frontend import convert
from tests.helpers.capturing import new_region


def test_functions_with_one_code_and_other_globals_have_versions_of_their_own():
    def program(x):
        stop(1)  # noqa: F821
        return x + G  # noqa: F821

    region, results = new_region(), []
    with config.patch(capture_pure_python=True, suppress_errors=False):
        for number in (10, 20):
            names = {"stop": _eval_frame.Uncaptured(results.append), "G": number}
            captured = region.wrap(types.FunctionType(program.__code__, names))
            results += [captured(1), captured(1)]
    assert results == [1, 1, 11, 11, 1, 1, 21, 21]


def test_a_version_knows_its_globals_before_the_analysis_has_returned_it(monkeypatch):
    """A signal handler may raise in between."""

    def program(x):
        return G + x  # noqa: F821

    def interrupted(self, *args, **kwargs):
        original(self, *args, **kwargs)
        if results == []:
            results.append("interrupt")
            raise KeyboardInterrupt

    original, results = convert.Region._compile, []
    monkeypatch.setattr(convert.Region, "_compile", interrupted)
    region = new_region()
    with config.patch(capture_pure_python=True, suppress_errors=False):
        for number in (10, 20):
            captured = region.wrap(types.FunctionType(program.__code__, {"G": number}))
            for _ in range(2):
                try:
                    results.append(captured(1))
                except KeyboardInterrupt:
                    results.append("raised")
    assert results == ["interrupt", "raised", 11, 21, 21]
    entries = region.cache_for(program.__code__).entries
    assert {entry.globals["G"] for entry in entries} == {10, 20}
