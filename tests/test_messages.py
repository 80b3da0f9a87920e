"""What is said to users, and what is not."""

import warnings

import pytest

from dynamo_lite import messages


def test_ignored_warnings_leave_the_filters_as_they_are():
    """Whatever happens to the list meanwhile."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        held = warnings.filters
        with messages.ignored():
            warnings.warn("of a compiler", stacklevel=1)
        assert warnings.filters is held
        with messages.ignored("Error detected in "):
            warnings.warn("Error detected in this", stacklevel=1)
            warnings.filterwarnings("ignore", "of an import")
            with pytest.raises(UserWarning, match="other"):
                warnings.warn("other", stacklevel=1)
        warnings.warn("of an import", stacklevel=1)
        before = list(warnings.filters)
        with messages.ignored():
            around = warnings.catch_warnings()
            around.__enter__()
        around.__exit__(None, None, None)
        assert list(warnings.filters) == before
        with messages.ignored():
            warnings.resetwarnings()
        assert list(warnings.filters) == []
