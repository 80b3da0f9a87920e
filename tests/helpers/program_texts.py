"""Programs given as the text of a module, as `tests.fuzz` writes them."""

import textwrap

from tests.fuzz import harness


def agrees(text):
    """The module's `program` does the same eagerly and captured, for arguments made by `make_args`."""
    text = textwrap.dedent(text) + "\nG, GL, GD = globals().get('G'), globals().get('GL'), {}\n"
    problem = harness.difference(text, view=list)
    assert problem is None, problem
