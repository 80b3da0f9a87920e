"""Programs as text, run as if each run were a process of its own: all their functions, classes and objects are made anew."""

import sys
import types

import torch

import dynamo_lite
from dynamo_lite import warm_cache
from dynamo_lite.record import STATS, log


def load(**texts):
    """Modules of these names, in the order in which they are given; the first one."""
    modules = []
    for name, text in texts.items():
        module = types.ModuleType(name)
        module.__file__ = f"/somewhere/{name}.py"
        sys.modules[name] = module
        exec(compile(text, module.__file__, "exec"), module.__dict__)
        modules.append(module)
    return modules[-1]


def new_process():
    """As in a new process: nothing is compiled, and what this one has kept is an earlier one's."""
    dynamo_lite.reset()
    warm_cache.recall()
    STATS.reset()
    log.reset()


class Run:
    """One run of `main()` of the last module: `main` returns a function or module, its arguments, and nothing is compiled yet."""

    def __init__(self, backend="eager", *, calls=1, **texts):
        new_process()
        torch.manual_seed(0)
        module = load(**texts)
        fn, args = module.main()
        eager, eager_args = module.main()
        torch.manual_seed(1)
        compiled = dynamo_lite.compile(fn, backend=backend)
        self.results = [compiled(*args) for _ in range(calls)]
        self.frames = {frame.name: frame for frame in log.snapshot()}
        self.hits, self.misses = STATS.cache_hits, STATS.cache_misses
        self.kept = STATS.cache_kept
        self.refusals = dict(STATS.cache_refusals)
        torch.manual_seed(0)
        module = load(**texts)
        eager, eager_args = module.main()
        torch.manual_seed(1)
        self.expected = [eager(*eager_args) for _ in range(calls)]
        self.args, self.eager_args = args, eager_args

    @property
    def is_right(self):
        torch.testing.assert_close(self.results, self.expected, rtol=0, atol=0)
        torch.testing.assert_close(
            [a for a in self.args if isinstance(a, torch.Tensor)],
            [a for a in self.eager_args if isinstance(a, torch.Tensor)],
            rtol=0,
            atol=0,
        )
        return True
