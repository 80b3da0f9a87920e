"""Enums made by captured code, and members from outside. Needs no torch."""

import enum

import pytest

from tests.helpers.capturing import same, wrapped


class TestEnums:
    def test_members(self):
        def program():
            class Color(enum.Enum):
                RED = 1
                GREEN = 2
                ROUGE = 1

                def hello(self):
                    return self.name + "!"

            class Bits(enum.Flag):
                R = 4
                W = 2

            class Number(enum.IntEnum):
                A = 1
                B = 2

            class Auto(enum.Enum):
                X = enum.auto()
                Y = enum.auto()

            return (
                [(m.name, m.value) for m in Color],
                Color.RED.hello(),
                Color(2) is Color.GREEN,
                Color["ROUGE"] is Color.RED,
                len(Color),
                Color.RED in Color,
                (Bits.R | Bits.W).value,
                Number.A + 1,
                Number.B > Number.A,
                Auto.Y.value,
                list(Color.__members__),
            )

        same(program, breaks=["class-definition"])


@pytest.mark.usefixtures("pure_python")
def test_parts_that_formatting_asks_for():
    """Those of an enum member, or of an alias of a class, may change."""
    E = enum.Enum("E", "A")
    fn = wrapped(lambda x: "{0.a} {0} {0!r:>8}".format(x))  # noqa: UP032
    for E.A.a in (1, 2):
        assert fn(E.A) == f"{E.A.a} E.A <E.A: 1>"
