"""Tensor checks: through torch's C shim, by attributes, and in Python; all three agree."""

import threading

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import BaseTorchFunctionMode

from dynamo_lite import _eval_frame
from dynamo_lite.guards import ir
from dynamo_lite.guards import tensor_guards as tensor
from dynamo_lite.guards.ir import GuardSet
from dynamo_lite.guards.mirror import Mirror, explain_miss
from dynamo_lite.guards.program import build_program


class Subclass(torch.Tensor):
    pass


class Logging(torch.Tensor):
    """Overrides what torch functions do; attribute reads go through __torch_function__."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def inference():
    with torch.inference_mode():
        return torch.zeros(2, 3)


def non_leaf():
    return torch.zeros(2, 3, requires_grad=True) * 2


KINDS = {
    "plain": lambda: torch.zeros(2, 3),
    "other size": lambda: torch.zeros(2, 4),
    "other rank": lambda: torch.zeros(2, 3, 1),
    "scalar": lambda: torch.zeros(()),
    "empty": lambda: torch.zeros(0, 3),
    "transposed": lambda: torch.zeros(3, 2).t(),
    "expanded": lambda: torch.zeros(1, 3).expand(2, 3),
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "double": lambda: torch.zeros(2, 3, dtype=torch.float64),
    "int": lambda: torch.zeros(2, 3, dtype=torch.int64),
    "bool": lambda: torch.zeros(2, 3, dtype=torch.bool),
    "bfloat16": lambda: torch.zeros(2, 3, dtype=torch.bfloat16),
    "float8": lambda: torch.zeros(2, 3).to(torch.float8_e4m3fn),
    "grad": lambda: torch.zeros(2, 3, requires_grad=True),
    "non-leaf": non_leaf,
    "detached": lambda: non_leaf().detach(),
    "parameter": lambda: torch.nn.Parameter(torch.zeros(2, 3)),
    "frozen parameter": lambda: torch.nn.Parameter(torch.zeros(2, 3), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.zeros(2, 3)),
    "meta": lambda: torch.zeros(2, 3, device="meta"),
    "complex": lambda: torch.zeros(2, 3, dtype=torch.complex64),
    "conjugated": lambda: torch.zeros(2, 3, dtype=torch.complex64).conj(),
    "negated": lambda: torch.zeros(2, 3, dtype=torch.complex64).conj().imag,
    "sparse": lambda: torch.zeros(2, 3).to_sparse(),
    "sparse csr": lambda: torch.zeros(2, 3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.zeros(2, 3), 0.1, 0, torch.qint8),
    "inference": inference,
    "subclass": lambda: torch.zeros(2, 3).as_subclass(Subclass),
    "logging subclass": lambda: torch.zeros(2, 3).as_subclass(Logging),
    "fake": lambda: FakeTensorMode().from_tensor(torch.zeros(2, 3)),
    "not a tensor": lambda: 5,
    "None": lambda: None,
}


@pytest.fixture(params=["shim", "attributes"])
def reader(request):
    previous = _eval_frame.use_tensor_shim(request.param == "shim")
    assert previous, "torch's shim could not be verified"
    yield request.param
    _eval_frame.use_tensor_shim(True)


def guarded(spec):
    guards = GuardSet(["x"])
    guards.check(guards.node(None, ir.LOCAL, 0), ir.TENSOR, spec)
    return guards, build_program(guards), Mirror(guards)


def test_everything_is_read_through_the_shim():
    assert tensor.SHIM == dict.fromkeys(("metadata", "keys", "requires_grad", "layout", "requires_grad_in_place"), True)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("not a tensor", "None")])
def test_a_tensor_passes_its_own_spec_and_no_other(name, reader):
    spec = tensor.tensor_spec(KINDS[name]())
    guards, program, mirror = guarded(spec)
    passed = []
    for other, make in KINDS.items():
        value = make()
        result = program.check((value,))
        assert result is program.check((value,)) is mirror.check((value,))
        assert result is (not explain_miss(guards, (value,)))
        if result:
            passed.append(other)
    # These differ in nothing that a guard looks at.
    alike = [{"plain", "detached", "buffer"}, {"grad", "non-leaf"}]
    assert set(passed) == next((group for group in alike if name in group), {name})


def test_requires_grad_as_the_user_sees_it(reader):
    x = torch.zeros(2, 3)
    _, program, _ = guarded(tensor.tensor_spec(x))
    assert program.check((x,))
    x.requires_grad_()
    assert not program.check((x,))
    x.requires_grad_(False)
    assert program.check((x,))
    y = torch.zeros(2, 3, requires_grad=True)
    with torch.no_grad():
        assert program.check((y * 2,))
    assert not program.check((y * 2,))
    with torch.inference_mode():
        assert not program.check((y * 2,)), "an inference tensor"


def test_in_place_changes_of_metadata(reader):
    x = torch.zeros(2, 3)
    _, program, _ = guarded(tensor.tensor_spec(x))
    for change, undo in (
        (lambda: x.resize_(3, 2), lambda: x.resize_(2, 3)),
        (lambda: x.t_(), lambda: x.t_()),
        (
            lambda: setattr(x, "data", torch.zeros(2, 3, dtype=torch.int32)),
            lambda: setattr(x, "data", torch.zeros(2, 3)),
        ),
    ):
        assert program.check((x,))
        change()
        assert not program.check((x,))
        undo()
        assert program.check((x,))


def test_dynamic_sizes(reader):
    x = torch.zeros(2, 5, 3)
    _, program, mirror = guarded(tensor.tensor_spec(x, dynamic_sizes=[1]))
    for value, expected in (
        (torch.zeros(2, 7, 3), True),
        (torch.zeros(2, 1, 3), True),
        (torch.zeros(2, 0, 3), True),
        (torch.zeros(3, 5, 3), False),
        (torch.zeros(2, 5, 4), False),
        (torch.zeros(2, 3, 5).transpose(1, 2), False),
        (torch.zeros(2, 5), False),
    ):
        assert program.check((value,)) is mirror.check((value,)) is expected


def test_strides():
    x = torch.zeros(4, 5, 6)
    assert tensor.tensor_spec(x)[6] == (30, 6, 1)
    assert tensor.tensor_spec(x, [1])[6] == (None, 6, 1)
    assert tensor.tensor_spec(x, [2])[6] == (None, None, 1)
    assert tensor.tensor_spec(x, [0])[6] == (30, 6, 1)
    assert tensor.tensor_spec(x, strides=False)[6] is None
    assert tensor.tensor_spec(x, strides=None)[6] is None
    assert tensor.tensor_spec(x, strides=(None, 6, 1))[6] == (None, 6, 1)
    assert tensor.tensor_spec(x.to_sparse())[6] is None


def test_functorch_wrappers_are_not_plain_tensors(reader):
    plain = torch.zeros(2, 3)
    _, program, _ = guarded(tensor.tensor_spec(plain))
    seen = []

    def f(x):
        seen.append(program.check((x,)))
        return x.sum()

    torch.func.grad(f)(plain)
    torch.func.vmap(f)(torch.zeros(4, 2, 3))
    assert seen == [False, False]


def test_reasons():
    guards, _, _ = guarded(tensor.tensor_spec(torch.zeros(2, 3), dynamic_sizes=[0]))
    why = {name: [str(failure) for failure in explain_miss(guards, (make(),))] for name, make in KINDS.items()}
    assert why["plain"] == []
    assert why["other size"] == ["x: expected shape (*, 3), found shape (2, 4)"]
    assert why["grad"] == ["x: expected requires_grad False, found requires_grad True"]
    assert why["parameter"] == ["x: expected type Tensor, found type Parameter"]
    assert why["None"] == ["x: expected type Tensor, found type NoneType"]
    assert why["sparse"] == ["x: expected layout torch.strided, found layout torch.sparse_coo"]
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)])
    (failure,) = explain_miss(guards, (nested,))
    assert failure.expected.endswith("shape (*, 3)") and failure.found.endswith("shape nested")
    assert why["double"][0].startswith("x: expected dtype torch.float32")


def test_global_state():
    check = tensor.global_state_check()
    assert check()
    with torch.no_grad():
        assert not check()
    with torch.autocast("cpu"):
        assert not check()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert not check()
    finally:
        torch.set_default_dtype(default)
    assert check()
    before = tensor._global_state()
    with torch.no_grad():
        assert tensor._global_state() != before
    assert tensor._global_state() == before


def test_modes_that_are_active_are_seen():
    assert tensor.no_modes is _eval_frame.no_modes, "torch's functions could not be verified"
    for mode in (torch.device("meta"), BaseTorchFunctionMode(), FakeTensorMode()):
        assert tensor.no_modes() is tensor._has_no_modes() is True
        with mode:
            assert tensor.no_modes() is tensor._has_no_modes() is False
            there = []
            thread = threading.Thread(target=lambda: there.append(tensor.no_modes()))
            thread.start()
            thread.join()
            assert there == [True]
    assert tensor.no_modes()
    with torch.autograd.forward_ad.dual_level():
        assert tensor.no_modes() is tensor._has_no_modes() is False
    assert tensor.no_modes()


class Holder:
    def __init__(self, value):
        self.value = value


def changes_in_place():
    """Every way to give a tensor other metadata without making it another object."""

    def data(make):
        def change(tensor):
            tensor.data = make(tensor.data)

        return change

    return {
        "nothing": lambda tensor: None,
        "the same again": data(lambda x: x.clone()),
        "other values": lambda tensor: tensor.data.add_(1),
        "a view": data(lambda x: x.view(x.shape)),
        "shape": data(lambda x: x.unsqueeze(0)),
        "size": data(lambda x: x.new_zeros((*x.shape[:-1], 9))),
        "first size": data(lambda x: x.new_zeros((9, *x.shape[1:]))),
        "strides": data(lambda x: x.as_strided(x.shape, (0,) * x.dim())),
        "last stride": data(lambda x: x.as_strided(x.shape, (*x.stride()[:-1], 0))),
        "offset": data(lambda x: x.new_zeros(x.numel() + 1)[1:].view(x.shape)),
        "dtype": data(lambda x: x.to(torch.float64)),
        "complex": data(lambda x: x.to(torch.complex64)),
        "device": data(lambda x: x.to("meta")),
        "requires_grad": lambda tensor: tensor.requires_grad_(not tensor.requires_grad),
        "resize": lambda tensor: tensor.resize_(100),
        "transpose": lambda tensor: tensor.transpose_(0, -1),
        "class": lambda tensor: setattr(tensor, "__class__", Subclass),
        "set_": lambda tensor: tensor.set_(),
        "swap": lambda tensor: torch.utils.swap_tensors(tensor, torch.zeros(11)),
    }


REFUSED = ("device", "last stride", "resize")  # by torch, for some shapes and kinds: nothing has changed then


@pytest.mark.parametrize("kind", [torch.zeros, torch.nn.Parameter, torch.nn.Buffer], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "shape", [(), (2,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 2, 3, 2, 4), (1, 2, 1, 2, 1, 2, 1)], ids=len
)
@pytest.mark.parametrize("change", changes_in_place())
def test_a_tensor_that_is_checked_again_and_again(change, shape, kind):
    value = torch.zeros(shape)
    holder = Holder(value if kind is torch.zeros else kind(value))
    guards = GuardSet(["holder"])
    instance_dict = guards.node(guards.node(None, ir.LOCAL, 0), ir.INSTANCE_DICT, None)
    guards.check(guards.node(instance_dict, ir.DICT_ITEM, "value"), ir.TENSOR, tensor.tensor_spec(holder.value))
    program, mirror = build_program(guards), Mirror(guards)
    assert [program.check((holder,)) for _ in range(3)] == [True] * 3
    try:
        with torch.no_grad():
            changes_in_place()[change](holder.value)
    except RuntimeError:
        assert change in REFUSED
    expected = mirror.check((holder,))
    assert expected or change not in ("nothing", "the same again", "other values", "a view", "offset")
    assert [program.check((holder,)) for _ in range(3)] == [expected] * 3


def test_a_connection_that_cannot_be_verified_is_not_used():
    libraries = tensor._library_names()
    x = torch.zeros(2)
    good = (x, x._cdata, False, tensor.dispatch_keys(x))
    try:
        for probes, found in (  # one tensor of one dimension does not tell where its sizes lie
            ((), ()),
            (((x, x._cdata + 8, False, good[3]),), ()),
            (((x, x._cdata, True, good[3]),), ("metadata", "keys")),
            (((x, x._cdata, False, good[3] + 1),), ("metadata", "requires_grad")),
        ):
            assert _eval_frame.init_tensor(torch.Tensor, (torch.Tensor,), libraries, probes) == {
                name: name in found for name in ("metadata", "keys", "requires_grad", "layout")
            }
            for name in ("plain", "grad", "conjugated", "meta"):
                value = KINDS[name]()
                _, program, mirror = guarded(tensor.tensor_spec(value))
                for make in KINDS.values():
                    other = make()
                    assert program.check((other,)) is mirror.check((other,))
        nothing = _eval_frame.init_tensor(torch.Tensor, (torch.Tensor,), ("libnothing.so",), (good,))
        assert nothing["metadata"] is False
        assert _eval_frame.read_tensor(x) is None
    finally:
        assert tensor._connect() == tensor.SHIM
