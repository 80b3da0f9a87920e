"""Tests that go through a long table, or take many seconds: which of their cases `make test` runs, and the record of a run of the rest.

Input: the test items that pytest has collected. Output: those that `make test` leaves to `make sweeps`, which runs them and writes
`results/sweeps.md`. Invariant: each feature has a case in `make test`.

    python -m tests.sweeps [options of pytest]
"""

from __future__ import annotations

import collections
import datetime
import fnmatch
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).parent.parent
RESULT = ROOT / "tests/results/sweeps.md"

EVERY = {
    "graph/test_nested_blocks.py::test_three_blocks*": 40,
    "backends/test_adapters.py::test_forward_without_grad*inductor*": 0,
    "backends/test_adapters.py::test_input_mutation*inductor*": 0,
    "backends/test_adapters.py::test_training*inductor*": 0,
    "backends/test_buckets.py::test_models*": 2,
    "backends/test_buckets.py::test_off*": 3,
    "backends/test_buckets.py::test_options_of_DDP*": 3,
    "backends/test_buckets.py::test_tuned_graphs_are_cut": 0,
    "backends/test_compiled_graph.py::test_training_is_not": 0,
    "backends/test_compiled_graph.py::test_under_torch_compile": 0,
    "backends/test_compiled_graph.py::test_which_are_called_directly*": 3,
    "backends/test_freezing.py::test_inductors_own_setting*": 0,
    "backends/test_frozen_parts.py::test_halves*": 0,
    "backends/test_inference.py::test_as_in_eager_execution*": 5,
    "backends/test_pooling.py::test_what_is_right_is_left_alone": 0,
    "backends/test_pooling.py::test_windows_beyond_the_input*": 5,
    "backends/test_pooling.py::test_without_gradients_padding_is_no_matter": 0,
    "backends/test_recurrent.py::test_dropout_between_layers_draws_what_it_draws*": 12,
    "backends/test_recurrent.py::test_dropout_between_layers_under_inductor": 0,
    "backends/test_regions.py::test_blocks_are_compiled_once*": 4,
    "backends/test_regions.py::test_inductor*": 0,
    "backends/test_regions.py::test_where_a_graph_cannot_be_cut_it_stays_whole*": 3,
    "backends/test_undefined_gradients.py::test_the_part_that_the_loss_does_not_ask_for*inductor*": 0,
    "benchmarks/test_driver.py::test_processes_of_their_own": 0,
    "conformance/test_conformance.py::test_module_passes_captured*": 4,
    "csrc/c_stack/test_c_stack.py::test_a_recursion_limit_that_no_stack_has_room_for*": 0,
    "csrc/c_stack/test_c_stack.py::test_deep_nesting_in_the_main_thread": 0,
    "csrc/c_stack/test_c_stack.py::test_recursion_in_a_thread": 0,
    "csrc/c_stack/test_c_stack.py::test_recursion_in_a_thread_with_little_stack*": 3,
    "csrc/c_stack/test_c_stack.py::test_recursion_in_the_main_thread": 0,
    "distributed/test_collectives.py::test_as_in_eager_execution*all_reduce of a*": 0,
    "distributed/test_collectives.py::test_as_in_eager_execution*aot_eager*": 0,
    "distributed/test_collectives.py::test_as_in_eager_execution*gradients]": 6,
    "distributed/test_examples.py::test_ranks_end_with_the_same_weights*": 0,
    "distributed/test_faults.py::test_a_rank_that_is_killed*": 2,
    "distributed/test_setups.py::test_as_in_eager_execution": 0,
    "distributed/test_setups.py::test_trainings*": 0,
    "docstrings/test_docstrings.py::test_captured_equals_eager*": 0,
    "frontend/test_unread_variables.py::test_what_an_unread_variable_holds_lives_on*": 3,
    "graph/test_autograd_function.py::test_one_graph*inductor*": 8,
    "graph/test_boxed.py::test_operators_of_the_table_take_any_data": 0,
    "graph/test_branch_effects.py::test_whole*": 4,
    "graph/test_branch_loops.py::test_inductor*": 4,
    "graph/test_branch_loops.py::test_whole*": 4,
    "graph/test_branches.py::test_inductor*": 5,
    "graph/test_branches.py::test_whole[*True]": 6,
    "graph/test_direct.py::test_as_torch_says*": 3,
    "graph/test_direct.py::test_constant_sizes_as_torch_says*": 3,
    "graph/test_extremes.py::test_gradients*": 6,
    "graph/test_fake.py::test_stand_in_gives_way_to_the_real_package": 0,
    "graph/test_fake_inputs.py::test_training*": 4,
    "graph/test_floats.py::test_behind_inductor": 0,
    "graph/test_floats.py::test_methods_of_varying_floats_are_nodes*inductor*": 0,
    "graph/test_followed_wrappers.py::test_one_graph*": 3,
    "graph/test_foreach.py::test_foreach_operators_return_what_they_return_in_eager_execution*": 3,
    "graph/test_function_apply.py::test_inductor*": 0,
    "graph/test_function_apply.py::test_one_graph*": 3,
    "graph/test_higher_order_operators.py::test_arguments*": 8,
    "graph/test_higher_order_operators.py::test_bodies*": 4,
    "graph/test_higher_order_operators.py::test_inductor*": 0,
    "graph/test_higher_order_operators.py::test_regions*": 9,
    "graph/test_higher_order_operators.py::test_while_loop*": 3,
    "graph/test_jagged.py::test_one_graph*": 3,
    "graph/test_jagged.py::test_training*": 3,
    "graph/test_leaves.py::test_changed_in_one_graph*": 3,
    "graph/test_nonzero_rows.py::test_experts_in_training*inductor*": 0,
    "graph/test_nonzero_rows.py::test_gradients_break*": 2,
    "graph/test_nonzero_rows.py::test_whole*": 5,
    "graph/test_numpy.py::test_calls*": 3,
    "graph/test_opinfo.py::test_operator*": 10,
    "graph/test_other_tracers.py::test_jit_trace_of_a_compiled_function_says_what_is_wrong*": 6,
    "graph/test_overlaps.py::test_changes_show_in_the_other*": 3,
    "graph/test_quantization.py::test_training_per_channel_and_per_tensor*inductor*": 0,
    "graph/test_saved_tensors.py::test_around*inductor*": 0,
    "graph/test_saved_tensors.py::test_inductor": 0,
    "graph/test_saved_tensors.py::test_whole*": 4,
    "graph/test_shapes.py::test_compilers_get_numbers_and_sizes_that_depend_on_data*inductor*": 0,
    "graph/test_shapes.py::test_powers_of_numbers_that_vary*aot_eager*": 0,
    "graph/test_tensor_new.py::test_constructors_make_what_they_make_in_eager_execution*": 3,
    "graph/test_transforms.py::test_each_configuration_is_compiled_once*": 3,
    "graph/test_transforms.py::test_inductor*": 6,
    "graph/test_transforms.py::test_one_graph*": 3,
    "graph/test_transforms.py::test_transforms_around_compiled_functions*": 3,
    "guards/test_record.py::test_many_changes_in_a_row*": 3,
    "guards/test_record.py::test_one_change*": 3,
    "guards/test_tensor.py::test_a_tensor_that_is_checked_again_and_again*": 4,
    "helpers/test_forked_processes.py::test_as_if_started_anew*": 3,
    "isa/test_lift.py::test_standard_library*": 8,
    "isa/test_resume_everywhere.py::test_at_calls*": 4,
    "isa/test_resume_everywhere.py::test_value*": 4,
    "models/test_generation.py::test_prompts_of_other_lengths*": 3,
    "models/test_generation.py::test_tokens_and_versions*": 5,
    "models/test_models.py::test_timm*": 6,
    "models/test_models.py::test_training_a_convolutional_model_under_aot_eager": 0,
    "models/test_models.py::test_training_under_aot_eager*": 0,
    "models/test_models.py::test_training_under_inductor*": 0,
    "models/test_models.py::test_transformers*": 4,
    "models/test_zoo.py::test_a_model_is_measured*": 2,
    "ops/test_ops.py::test_compiled_equals_eager*": 0,
    "recompiles/test_counts.py::test_no_more_graphs_than_torch_compile*": 3,
    "report/test_minify.py::test_command_and_script*crashing*": 0,
    "report/test_observers.py::test_observers_change_nothing*": 8,
    "report/test_observers.py::test_the_sample_recompiles_and_breaks": 0,
    "report/test_torch_logs.py::test_every_line_has_a_compile_id": 0,
    "report/test_torch_logs.py::test_graph_breaks": 0,
    "report/test_torch_logs.py::test_structured_trace": 0,
    "shapes/test_data_programs.py::test_graphs*": 3,
    "shapes/test_data_programs.py::test_inductor*": 10,
    "shapes/test_data_programs.py::test_whole_graphs_under_aot*": 3,
    "shapes/test_floats_of_sizes.py::test_a_scale_from_sizes_that_are_rounded*inductor*": 0,
    "shapes/test_programs.py::test_any_sizes*": 3,
    "shapes/test_programs.py::test_series*": 3,
    "shapes/test_strides.py::test_later_views_have_the_results_of_eager_execution*": 13,
    "test_cli.py::test_a_report_that_nobody_reads_to_its_end*": 3,
    "test_cli.py::test_optimize_is_ours_where_the_script_is_the_first_to_load_it": 0,
    "test_cli.py::test_training_script_unchanged": 0,
    "test_docs.py::test_tutorial[graph-breaks]": 0,
    "test_docs.py::test_tutorial[serving]": 0,
    "test_docs.py::test_tutorial[slow-model]": 0,
    "test_docs.py::test_tutorial[training]": 0,
    "test_docs.py::test_tutorial[write-a-backend]": 0,
    "test_lifetimes.py::test_functions_that_are_gone_leave_nothing_after_a_reset*": 2,
    "test_lifetimes.py::test_tensors_of_a_call_die_as_in_eager_execution*-eager*": 3,
    "test_lifetimes.py::test_tensors_of_a_call_die_as_in_eager_execution*aot_eager*": 6,
    "test_lifetimes.py::test_what_the_program_drops_dies_in_the_code_of_inductor*": 3,
    "test_processes.py::test_data_loader[spawn]": 0,
    "test_progress.py::test_on_a_terminal": 0,
    "test_replaced.py::test_replaced*": 3,
    "test_robustness.py::test_allocations_that_fail*": 4,
    "tune/test_apart.py::TestBackground::test_a_winner_that_fails_here": 0,
    "tune/test_apart.py::test_backends_that_end_the_process_drop_out_and_the_others_race": 0,
    "tune/test_apart.py::test_gradients_are_recorded_there_as_here": 0,
    "tune/test_apart.py::test_heavy_candidates_are_tried_before_the_race": 0,
    "tune/test_apart.py::test_symbolic_sizes_shared_memory_and_bodies_are_carried": 0,
    "tune/test_apart.py::test_what_hangs_is_ended": 0,
    "tune/test_apart.py::test_what_only_this_program_knows_cannot_be_carried": 0,
    "tune/test_faults.py::test_a_full_disk*": 3,
    "tune/test_faults.py::test_a_race_in_the_background_ends_with_its_program": 0,
    "tune/test_faults.py::test_a_race_that_is_killed_leaves_the_store_whole": 0,
    "tune/test_offline.py::test_collect_race_use": 0,
    "variables/test_across_breaks.py::test_breaks_between_statements*": 4,
    "variables/test_attribute_hooks.py::test_what_is_asked*": 4,
    "variables/test_context.py::test_all_orders*": 3,
    "variables/test_hooks_in_backward.py::test_whole_steps*": 5,
    "variables/test_module_hooks.py::test_full_backward_hooks_in_one_graph*inductor*": 0,
    "variables/test_operator.py::test_slots_of_sequences_and_of_numbers*": 3,
    "variables/test_symbolic_numbers.py::test_errors_say_what_those_of_cpython_say*": 8,
    "variables/test_tensor_data.py::test_results_that_share_memory*aot_eager*": 4,
    "variables/test_tensor_data.py::test_what_is_kept_for_gradients_is_not_what_was_assigned*": 3,
    "variables/test_tensor_indexing.py::test_writing*": 3,
    "variables/test_torch_checkpoint.py::test_forms*": 3,
    "variables/test_torch_gradients.py::test_backward_in_the_graph*": 4,
    "variables/test_torch_optim.py::test_averaged_models*": 4,
    "variables/test_torch_optim.py::test_schedule*": 3,
    "variables/test_torch_optim.py::test_whole*": 3,
    "variables/test_transform_arguments.py::test_operators*": 3,
    "variables/test_transform_arguments.py::test_transforms*": 3,
    "warm_cache/test_artifacts.py::test_inductor*": 0,
    "warm_cache/test_bodies.py::test_found_again*": 4,
    "warm_cache/test_changes.py::test_a_change_is_seen*": 2,
    "warm_cache/test_inductor.py::test_second_process": 0,
    "warm_cache/test_store.py::test_counts_are_the_same_in_each_process_with_the_cache_off": 0,
    "warm_cache/test_store.py::test_processes": 0,
}
"""Pattern of test names → n: `make test` runs the first of them and each nth after it; 0: none, where a quicker test is about the same."""


def sampled(items):
    """The items that `make test` leaves out."""
    patterns = {pattern: re.compile(fnmatch.translate(pattern.replace("[", "[[]"))) for pattern in EVERY}
    seen = collections.Counter()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        pattern = next((pattern for pattern, regex in patterns.items() if regex.match(name)), None)
        if pattern is not None:
            if not EVERY[pattern] or seen[pattern] % EVERY[pattern]:
                yield item
            seen[pattern] += 1


def page(report, seconds):
    """What a run in pytest's XML says, as a page."""
    import torch

    suite = report.find("testsuite")
    count = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    by_file, failed = collections.defaultdict(lambda: [0, 0.0]), []
    for case in suite.iter("testcase"):
        name = case.get("classname").removeprefix("tests.")
        by_file[name][0] += 1
        by_file[name][1] += float(case.get("time"))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{name}::{case.get('name')}")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    lines = [
        "# Sweeps",
        "",
        "Written by `make sweeps`: the cases of long tables that `make test` leaves out (`tests/sweeps.py`).",
        "",
        f"{datetime.date.today()}, commit {commit}, CPython {platform.python_version()}, torch {torch.__version__}: "
        f"{count['tests']} tests, {count['failures'] + count['errors']} failed, {count['skipped']} skipped, {seconds / 60:.0f} minutes.",
        "",
        *([*(f"- failed: `{name}`" for name in failed), ""]),
        "| file | tests | seconds |",
        "|---|---:|---:|",
        *(f"| {name} | {n} | {spent:.0f} |" for name, (n, spent) in sorted(by_file.items())),
    ]
    return "\n".join(lines) + "\n"


def main():
    """Run the sweeps and write the page. The exit status is pytest's."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        started = datetime.datetime.now()
        command = [sys.executable, "-m", "pytest", "-m", "sweep", f"--junitxml={report}", *sys.argv[1:]]
        status = subprocess.run(command, cwd=ROOT).returncode
        if report.exists():
            RESULT.parent.mkdir(exist_ok=True)
            seconds = (datetime.datetime.now() - started).total_seconds()
            RESULT.write_text(page(ElementTree.parse(report).getroot(), seconds))
    return status


if __name__ == "__main__":
    sys.exit(main())
