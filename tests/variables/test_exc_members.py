"""Exceptions whose members C parses from their arguments: traced code that makes one, or meets one raised by C code, breaks the graph."""

import pytest

from tests.helpers.differential import breaks, capture, check


class Mine(OSError):
    def __init__(self, a):
        super().__init__(a, "text")


TEXTS = [
    """
    e = SyntaxError("msg", ("file", 3, 5, "text", 3, 9))
    str(e), e.msg, e.lineno, e.offset, e.text, e.filename, e.end_lineno, e.args, e.print_file_and_line
    """,
    """
    try:
        raise SyntaxError("invalid syntax", ("file.py", 1, 4, "x +"))
    except SyntaxError as e:
        r = str(e), e.msg, e.lineno, e.offset, e.text, e.filename
    r
    """,
    """
    try:
        b"\\xff".decode("utf-8")
    except UnicodeDecodeError as e:
        r = str(e), e.start, e.end, e.object, e.encoding, e.reason, e.args
        e.start = 5
        r = r, e.start
    r
    """,
    """
    try:
        "é".encode("ascii")
    except UnicodeError as e:
        r = e
    r.start, r.object, str(r)
    """,
    """
    e = UnicodeDecodeError("a", b"b", 0, 1, "reason")
    e.start = "x"
    """,
    "UnicodeDecodeError(1)",
    "raise OSError(2, 'no', 'name')",
    """
    e = OSError(2, "no", "name")
    type(e), e.errno, e.strerror, e.filename, e.args, str(e), repr(e)
    """,
    "e = OSError('x'); e.errno, e.args, str(e)",
    "e = OSError(); str(e), e.args, type(e)",
    "e = PermissionError(13, 'p'); str(e), e.errno",
    """
    e = Mine(13)
    type(e).__name__, e.errno, str(e), e.args
    """,
    """
    import re
    try:
        re.compile("(")
    except re.error as e:
        r = e.msg, e.pos, str(e)
    r
    """,
]


def test_members():
    check(*TEXTS, names={"Mine": Mine}, fullgraph=False, z=1)


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("raise OSError(2, 'no', 'name')", "call-c-function"),
        ("Mine(13)", "call-c-function"),
        ("SyntaxError('msg')", "call-c-function"),
        ("ExceptionGroup('g', [ValueError()])", "call-c-function"),
        ("UnicodeDecodeError('a', b'b', 0, 1, 'reason')", "call-c-function"),
        ("b'\\xff'.decode('utf-8')", "exception-unrepresentable"),
    ],
)
def test_making_one_breaks(text, slug):
    breaks(text, slug, names={"Mine": Mine})


def test_they_leave():
    def attributes(e):
        names = "args msg lineno text start object errno strerror filename".split()
        return type(e), str(e), [getattr(e, n, None) for n in names]

    from dynamo_lite.config import config

    def make(kind):
        try:
            if kind == 0:
                raise SyntaxError("invalid syntax", ("file.py", 1, 4, "x +"))
            elif kind == 1:
                b"\xff".decode("utf-8")
            else:
                raise OSError(2, "no", "name")
        except Exception as e:
            return e

    for kind in range(3):
        with config.patch(capture_pure_python=True, debug=True):
            assert attributes(capture(make, fullgraph=False)(kind)) == attributes(make(kind))
