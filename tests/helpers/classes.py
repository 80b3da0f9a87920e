"""Classes that several test files use. This imports no torch."""


def with_wrapped_methods(wrap):
    """A class whose methods are wrapped: three have names for which `type` makes static and class methods of Python functions."""

    class Base:
        @wrap
        def __new__(cls, n):
            made = object.__new__(cls)
            made.n = n
            return made

        @wrap
        def __init_subclass__(cls, **keywords):
            cls.keywords = keywords

        @wrap
        def __class_getitem__(cls, item):
            return cls, item

        @wrap
        def plain(self):
            return self

    return Base


def kinds_of_methods(made):
    """What the class holds under the three names."""
    return [type(vars(made)[name]) for name in ("__new__", "__init_subclass__", "__class_getitem__")]
