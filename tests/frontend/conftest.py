"""What the tests of frames share."""

import weakref

import pytest


class Thing:
    pass


@pytest.fixture
def no_other_evaluator():
    """Skip if CPython calls Python functions through an evaluator, so that the caller's stack holds the arguments during the call."""

    def drop(thing):
        ref = weakref.ref(thing)
        del thing
        return ref() is not None

    if drop(Thing()):
        pytest.skip(
            "an earlier torch.compile with fullgraph=True has raised, and has left its frame evaluator installed"
        )
