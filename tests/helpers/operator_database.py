"""Torch's databases of operators and modules and their sample inputs, made cheap to ask.

Input: nothing. Output: `op_db`, `module_db`, and the modules `common_methods_invocations` and `opinfo`. Torch's
iterators over samples look for a `unittest.TestCase` among their callers, through `inspect.stack()`, which takes 0.1
s; there is none in these tests. They seed before each sample, with `torch.manual_seed`; here with `seeds.seed`, which
leaves the same state, so that the samples are the same.
"""

import random
import sys
import types
import unittest

import numpy

from tests.helpers import seeds

if "expecttest" not in sys.modules:  # the modules of the database import it for torch's own tests
    sys.modules["expecttest"] = types.ModuleType("expecttest")
    sys.modules["expecttest"].TestCase = unittest.TestCase

from torch.testing._internal import common_methods_invocations, common_modules, common_utils, opinfo

op_db, module_db = common_methods_invocations.op_db, common_modules.module_db
__all__ = ["common_methods_invocations", "module_db", "op_db", "opinfo"]


def _set_rng_seed(seed: int | None = None) -> None:
    seed = common_utils.SEED if seed is None else seed
    seeds.seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


common_utils.set_rng_seed = _set_rng_seed
common_utils.extract_test_fn = lambda: None
