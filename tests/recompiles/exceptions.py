"""Programs of which dynamo_lite compiles more graphs than torch.compile, or captures fewer operators: how many graphs, and why."""

from __future__ import annotations

from typing import NamedTuple


class Allowed(NamedTuple):
    graphs: int
    reason: str
    operators: int | None = None  # where they are fewer than those of torch.compile: how many


LOOP = "torch.compile runs a frame that breaks in a loop eagerly: nothing of it is captured"
TRY = "torch.compile runs a frame that breaks in `try` eagerly: nothing of it is captured"
LIMIT = "once the limit of a function is used up, torch.compile compiles nothing that it calls; here what does not decide is compiled once"
HOOKS = (
    "torch.compile has no guards on hooks (skip_nnmodule_hook_guards), and would not notice another hook; here the number of the hook's "
    "handle is a guard at first, and varies from the second version on"
)
ITERATOR = "torch.compile cannot go on with such an iterator: what follows the break runs eagerly"
FIRST = "torch.compile gives up a frame that has no operator at its first call"

EXCEPTIONS = {
    "optional_number": Allowed(2, FIRST),
    "equal_hook_from_outside": Allowed(2, HOOKS),
    "equal_pre_hook_from_outside": Allowed(2, HOOKS),
    "loop_with_break": Allowed(5, LOOP),
    "nested_loops_with_break": Allowed(7, LOOP),
    "loop_in_try_with_break": Allowed(5, LOOP),
    "try_with_break": Allowed(4, TRY),
    "raising_try_with_break": Allowed(5, TRY),
    "while_with_break": Allowed(6, LOOP),
    "enumerate_with_break": Allowed(10, LOOP + "; the lengths of lists are constants"),
    "zip_with_break": Allowed(4, LOOP),
    "loop_over_modules_with_break": Allowed(4, LOOP),
    "loop_over_tensors_with_break": Allowed(9, LOOP + "; the lengths of lists are constants"),
    "enumerate_after_a_break": Allowed(3, ITERATOR),
    "zip_after_a_break": Allowed(3, ITERATOR),
    "dict_iterator_after_a_break": Allowed(2, ITERATOR),
    "break_in_a_generator_manager": Allowed(4, "torch.compile runs such a frame eagerly: nothing of it is captured"),
    "break_in_sdpa_kernel": Allowed(
        6,
        "torch.compile knows sdpa_kernel and makes it anew after the break; here its generator goes on, and leaving the block is one more "
        "break",
    ),
    "recompile_limit_of_a_caller": Allowed(9, LIMIT),
    "recompile_limit_with_helpers": Allowed(9, LIMIT),
    "recompile_limit_before_a_break": Allowed(10, LIMIT),
    "numbers_as_text": Allowed(
        2, "torch.compile makes the number a constant because of the text, and gives the frame up"
    ),
    "arithmetic_of_numpy_numbers": Allowed(
        1,
        "torch.compile makes tensors of numpy's scalars, and operators of their arithmetic; here they are numbers",
        10,
    ),
    "break_in_the_inner_of_two_loops": Allowed(5, LOOP),
    "finally_with_break": Allowed(3, TRY),
    "while_that_counts_down_with_break": Allowed(4, LOOP),
    "directory_changed_inside": Allowed(
        6, "torch.compile runs a frame that breaks on entering a context manager eagerly"
    ),
    "dynamically_quantised_layers": Allowed(
        4, "torch.compile gives up the frames around a call with a ScriptObject, and all operators in them"
    ),
    "larger_of_tensors_with_gradients": Allowed(
        3,
        "torch.compile computes with `torch.maximum`, whose gradient is zeros, or NaN, for the tensor that was not chosen, where eager "
        "execution gives none",
        50,
    ),
    "sum_of_a_range_of_a_numpy_int": Allowed(
        2, "torch.compile makes tensors of numpy's scalars, and operators of their conversions", 10
    ),
    "attention_on_a_jagged_tensor": Allowed(
        3, "torch.compile runs what follows the attention, which reads lengths, eagerly"
    ),
    "recompile_limit_with_many_helpers": Allowed(11, LIMIT),
    "attention_with_padding": Allowed(
        2, "torch.compile follows `F._canonical_mask`, two operators; here it is one", 40
    ),
}
