"""Addresses: texts that have them in them, and `id`."""

import re

from dynamo_lite.config import config
from tests.helpers.capturing import same
from tests.helpers.differential import breaks, capture, check


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


def test_texts_without_an_address():
    check("repr(len), repr(list.append), repr(C), repr(list.__add__)", names={"C": Plain})


def test_texts_with_addresses_break():
    for text in (
        "repr(C())",
        "f'{C()}'",
        "str({'k': C()})",
        "repr(C().method)",
        "repr(lambda: 1)",
        "repr(x)",
        "repr(o) == repr(o)",
        "'object at' in repr(o)",
        "f'{outside}'",
    ):
        breaks(text, "object-identity", names={"C": Plain, "o": Plain(), "outside": outside}, x=Plain())


class TestIds:
    def test_addresses_of_what_is_gone(self):
        def program():
            return len(set(map(id, enumerate("abc")))), len(set(map(id, list(enumerate("abc")))))

        same(program)

    def test_an_object_that_may_have_got_the_address_of_another(self):
        def deleted():
            x = [1]
            before = id(x)
            del x
            y = [1]
            return id(y) == before

        def replaced():
            x = [1]
            before = id(x)
            x = [2]
            return id(x) == before

        def kept():
            x, y = [1], [2]
            before = id(x)
            return id(y) == before, id(x) == before

        same(deleted, breaks=["object-identity"])
        same(replaced, breaks=["object-identity"])
        same(kept, whole=True)
