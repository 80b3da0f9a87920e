"""Addresses: texts that have them in them, and `id`."""

import re

from dynamo_lite.config import config
from tests.helpers.capturing import same
from tests.helpers.differential import breaks, capture, check_lines


class Plain:
    def method(self):
        pass


def outside():
    pass


def test_texts_agree_with_the_objects():
    def program(old):
        def inner():
            yield

        new, bare, running = Plain(), object(), inner()
        texts = [
            repr(new),
            str(bare),
            f"{inner!r} and {outside}",
            "%s, %r" % (new, old),  # noqa: UP031
            "{} {!r}".format(bare, [new]),  # noqa: UP032
            "{a!r}".format_map({"a": inner}),
            ", ".join([repr(new), "x"]),
            "<" + repr(running),
            str({"k": new, new: (bare,)}),
            repr(new.method),
            repr([].append),
            repr(iter([])),
        ]
        return texts, new, bare, inner, running, len, old

    with config.patch(capture_pure_python=True, suppress_errors=False, debug=True):
        compiled = capture(program, fullgraph=False)
        for old in (Plain(), Plain()):
            texts, new, bare, inner, running, _, old = compiled(old)
            assert texts[:-2] == [
                repr(new),
                str(bare),
                f"{inner!r} and {outside}",
                f"{new}, {old!r}",
                f"{bare} {[new]!r}",
                repr(inner),
                f"{new!r}, x",
                "<" + repr(running),
                str({"k": new, new: (bare,)}),
                repr(new.method),
            ]
            assert re.fullmatch(r"<built-in method append of list object at 0x[0-9a-f]+>", texts[-2])
            assert re.fullmatch(r"<list_iterator object at 0x[0-9a-f]+>", texts[-1])


def test_the_address_of_a_constant_of_the_program_is_known():
    check_lines(
        """
        repr(o) == repr(o), repr(o) != repr(o), repr(o) == "text", repr(o) == 5, len(repr(o)), repr(o)[0], "%60r" % o
        repr(o).startswith("<"), "object at" in repr(o), {repr(o): 1}
        repr(len), repr(list.append), repr(C), repr(list.__add__), repr(outside), f"{outside}"
        """,
        names={"C": Plain, "o": Plain(), "outside": outside},
    )


def test_any_other_breaks():
    for text in (
        "repr(C())",
        "f'{C()}'",
        "'%60r' % C()",
        "str({'k': C()})",
        "repr(C().method)",
        "repr(lambda: 1)",
        "repr(x)",
    ):
        breaks(text, "object-identity", names={"C": Plain}, x=Plain())


class TestIds:
    def test_addresses_of_what_is_gone(self):
        def program():
            return len(set(map(id, enumerate("abc")))), len(set(map(id, list(enumerate("abc")))))

        same(program)
