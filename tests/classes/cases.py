"""Programs that use a class of torch's.

Input: the tables. Output: `Case`s by the name of their class. A case makes fresh objects each time, always the same, so that it can be run
eagerly and captured.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributions as D
from torch import nn, optim
from torch.distributions import transforms
from torch.optim import lr_scheduler

from tests.classes import tables

STEPS = 3


class Program(NamedTuple):
    """A function, the arguments of its calls, what to do before each call, and what to look at afterwards."""

    function: Callable[..., Any]
    calls: list[tuple[Any, ...]]
    before: Callable[[], Any] = lambda: None
    state: Callable[[], Any] = lambda: None


class Case(NamedTuple):
    """One class in one form."""

    name: str
    form: str
    text: str
    make: Callable[[], Program]


def evaluate(text: str, **names: Any) -> Any:
    return eval(text, {**tables.NAMES, **names})


def _state_of(module: nn.Module) -> Callable[[], Any]:
    return lambda: dict(module.state_dict(keep_vars=True))


def _module(arguments: str, constructor: str) -> nn.Module:
    known = {**vars(nn), "WithContainers": tables.WithContainers}
    return evaluate(constructor, **known)


def modules() -> Iterator[Case]:
    """In training and in evaluation, and made inside the captured function."""
    for arguments, constructors in tables.lines("modules"):
        for constructor in constructors:

            def call(is_training: bool, arguments: str = arguments, constructor: str = constructor) -> Program:
                module = _module(arguments, constructor).train(is_training)
                given = [evaluate(f"({arguments},)") for _ in range(2)]
                return Program(lambda *args: module(*args), given, state=_state_of(module))

            def inside(arguments: str = arguments, constructor: str = constructor) -> Program:
                make = evaluate(f"lambda: {constructor}", **{**vars(nn), "WithContainers": tables.WithContainers})

                def function(*args: Any) -> Any:
                    module = make()
                    return module(*args), list(module.state_dict().values())

                return Program(function, [evaluate(f"({arguments},)")])

            text = f"{constructor} of {arguments}"
            name = f"nn.{tables.class_of(constructor)}"
            yield Case(name, "training", text, lambda call=call: call(True))
            yield Case(name, "evaluation", text, lambda call=call: call(False))
            yield Case(name, "made inside", text, inside)


METHODS = {
    "sample": "d.sample(), d.sample((2,))",
    "rsample": "d.rsample((2,))",
    "log_prob": "d.log_prob(v)",
    "moments": "d.mean, d.variance, d.stddev",
    "mode": "d.mode",
    "entropy": "d.entropy()",
    "cdf": "d.cdf(v)",
    "icdf": "d.icdf(w)",
    "expand": "(e := d.expand((2, *d.batch_shape))).sample(), e.log_prob(v), e.batch_shape, e.event_shape",
    "enumerate_support": "d.enumerate_support(), d.enumerate_support(False)",
    "perplexity": "d.perplexity()",
    "support": "d.support.check(v), d.has_rsample, d.has_enumerate_support, [k for k in d.arg_constraints]",
    "kl": "D.kl_divergence(d, d2)",
}
"""Of a distribution `d`, with another one `d2` of the same kind, a sample `v` and numbers `w` from 0 to 1."""

PARAMETERS = ("p", "q", "r")


def distributions() -> Iterator[Case]:
    """Made and asked inside the captured function, with and without checks of their arguments."""
    for arguments, constructors in tables.lines("distributions"):
        for constructor in constructors:
            for form, method in METHODS.items():
                for checks in (True, False):

                    def make(
                        checks: bool = checks, arguments: str = arguments, made: str = constructor, method: str = method
                    ) -> Program:
                        given, others = evaluate(f"({arguments},)"), evaluate(f"({arguments},)")
                        names = PARAMETERS[: len(given)]
                        known = {**vars(D), "T": transforms}
                        with torch.no_grad():
                            sample = evaluate(made, **known, **dict(zip(names, given, strict=True))).sample()
                        number = torch.rand_like(sample.float())
                        if not checks:
                            made = f"{made[:-1]}, validate_args=False)"
                        second = ", ".join(f"{name}2" for name in names)
                        head = f"lambda {', '.join(names)}, {second}, v, w: "
                        with_others = f"(lambda {', '.join(names)}: {made})({second})"
                        body = f"(lambda d, d2: ({method}))({made}, {with_others})"
                        return Program(evaluate(head + body, **known), [(*given, *others, sample, number)])

                    name = f"distributions.{tables.class_of(constructor)}"
                    yield Case(name, form, f"{constructor} of {arguments}, validate_args={checks}", make)


OF_TRANSFORMS = {
    "forward": "t(x)",
    "inverse": "t.inv(t(x) * 1)",
    "jacobian": "t.log_abs_det_jacobian(x, t(x))",
    "made inside": "made()(x), made().inv(made()(x) * 1), made().forward_shape(x.shape)",
    "cached": "(y := t(x)), t.inv(y), t.domain.check(x), t.codomain.check(y)",
}


def transformations() -> Iterator[Case]:
    for arguments, constructors in tables.lines("transforms"):
        for constructor in constructors:
            for form, method in OF_TRANSFORMS.items():

                def make(arguments: str = arguments, constructor: str = constructor, method: str = method) -> Program:
                    known = {name: getattr(transforms, name) for name in transforms.__all__}
                    made = evaluate(f"lambda: {constructor}", **known)
                    torch.manual_seed(0)
                    function = evaluate(f"lambda x: ({method})", **known, t=made(), made=made)
                    return Program(function, [evaluate(f"({arguments},)") for _ in range(2)])

                name = f"distributions.{tables.class_of(constructor)}"
                yield Case(name, form, f"{constructor} of {arguments}", make)


class Training:
    """A model with an optimiser, and what a step of it needs."""

    def __init__(self, name: str, keywords: str) -> None:
        cls = getattr(optim, name)
        if name == "SparseAdam":
            self.model: nn.Module = nn.Embedding(6, 3, sparse=True)
            self.inputs = torch.tensor([1, 4, 1])
        else:
            bias = name != "Muon"
            self.model = nn.Sequential(nn.Linear(3, 4, bias=bias), nn.ReLU(), nn.Linear(4, 2, bias=bias))
            self.inputs = torch.rand(5, 3)
        self.optimizer = evaluate(f"cls(parameters, {keywords})", cls=cls, parameters=self.model.parameters())

    def loss(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(self.inputs).pow(2).sum()
        loss.backward()
        return loss

    def state(self) -> Any:
        gradients = [parameter.grad for parameter in self.model.parameters()]
        return list(self.model.parameters()), gradients, self.optimizer.state_dict()


def optimizers() -> Iterator[Case]:
    """Steps alone, and whole steps of training."""
    for name, options in tables.lines("optimizers"):
        for keywords in options:

            def step(name: str = name, keywords: str = keywords) -> Program:
                training = Training(name, keywords)
                closure = training.loss if name == "LBFGS" else None
                call = training.optimizer.step
                return Program(lambda: call(closure), [()] * STEPS, training.loss, training.state)

            def whole(name: str = name, keywords: str = keywords) -> Program:
                training = Training(name, keywords)

                def function() -> Any:
                    if name == "LBFGS":
                        return training.optimizer.step(training.loss)
                    loss = training.loss()
                    training.optimizer.step()
                    return loss

                return Program(function, [()] * STEPS, state=training.state)

            yield Case(f"optim.{name}", "step", f"{name}({keywords})", step)
            yield Case(f"optim.{name}", "step of training", f"{name}({keywords})", whole)


def schedulers() -> Iterator[Case]:
    """Steps of the scheduler alone, and after those of its optimiser."""
    for _, constructors in tables.lines("schedulers"):
        for constructor in constructors:
            name = tables.class_of(constructor)

            def make(with_optimizer: bool, constructor: str = constructor, name: str = name) -> Program:
                parameter = nn.Parameter(torch.rand(3))
                names = {"o": optim.SGD([parameter], 0.1), "m": optim.SGD([parameter], 0.1, momentum=0.9)}
                scheduler = evaluate(constructor, **vars(lr_scheduler), **names)
                optimizer = names["m" if constructor.startswith(f"{name}(m") else "o"]
                metrics = (0.5,) if name == "ReduceLROnPlateau" else ()

                def function() -> Any:
                    if with_optimizer:
                        optimizer.zero_grad()
                        (parameter * 3).sum().backward()
                        optimizer.step()
                    scheduler.step(*metrics)
                    return parameter * 2, scheduler.get_last_lr()

                def before() -> None:
                    parameter.grad = torch.ones(3)
                    if not with_optimizer:
                        optimizer.step()

                def state() -> Any:
                    kept = {key: value for key, value in scheduler.state_dict().items() if not callable(value)}
                    return parameter, optimizer.state_dict(), kept

                return Program(function, [()] * (STEPS + 2), before, state)

            yield Case(f"lr_scheduler.{name}", "step", constructor, lambda make=make: make(False))
            yield Case(f"lr_scheduler.{name}", "step of training", constructor, lambda make=make: make(True))


KINDS = {
    "nn": (nn, modules),
    "distributions": (D, distributions),
    "transforms": (transforms, transformations),
    "optim": (optim, optimizers),
    "lr_scheduler": (lr_scheduler, schedulers),
}


def names() -> list[str]:
    """The classes that have cases."""
    return list(by_class())


def by_class() -> dict[str, list[Case]]:
    """The cases of each class."""
    found: dict[str, list[Case]] = {}
    for _, cases in KINDS.values():
        for case in cases():
            found.setdefault(case.name, []).append(case)
    return found
