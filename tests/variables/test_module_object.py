"""Modules as objects: their attributes, and the class that a program gives them. Needs no torch."""

import types

import pytest

from tests.helpers.capturing import wrapped


@pytest.mark.usefixtures("pure_python")
def test_names_that_modules_have_not():
    """`ModuleType.__call__` is that of `type`."""
    module = types.ModuleType("m")
    fn = wrapped(lambda x: x.__call__)
    with pytest.raises(AttributeError, match="module 'm' has no attribute '__call__'"):
        fn(module)
    module.__getattr__ = lambda name: name
    assert fn(module) == "__call__"


@pytest.mark.usefixtures("pure_python")
def test_a_module_gets_another_class():
    """Its class attributes are seen where the module has none, and data descriptors before those of the module."""
    module = types.ModuleType("module_of_this_test")

    def program():
        return getattr(module, "value", None)

    def store():
        module.value = 7
        return vars(module).get("value")

    read, write = wrapped(program), wrapped(store)
    for attributes in ({}, {"value": 1}, {"value": property(lambda self: 5, lambda self, value: None)}, {}):
        module.__class__ = type("Sub", (types.ModuleType,), attributes) if attributes else types.ModuleType
        for present in (False, True):
            vars(module).pop("value", None)
            if present:
                vars(module)["value"] = 3
            assert read() == program()
            vars(module).pop("value", None)
            expected = store()
            vars(module).pop("value", None)
            assert write() == expected
