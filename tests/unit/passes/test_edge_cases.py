"""Every edge case of the reference page has a test: which one, row by row."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BN, SHARING, LEFT, AFFINE = "test_conv_bn", "test_conv_sharing", "test_conv_refusals", "test_conv_affine"
UPSTREAM, CLEANUP, STEPPER = "test_upstream", "test_cleanup", "test_stepper"
ISLANDS, CASES, MATCHER, LOWERING = "test_partition", "test_partition_cases", "test_matcher", "test_lowering"
TABLE, SPEED, TIMING = "../targets/test_op_table", "../../benchmarks/test_passes_speed", "../npu/test_npu_timing"

KINDS = (BN, "test_every_kind_of_layer_folds")
SHARED = (SHARING, "test_sharing_and_keywords")

# The first cell of each row of section 4, and the tests that have its right value; upstream's wrong one where there is one.
FOLDING = {
    "conv called twice, BN after one call only": [
        (SHARING, "test_a_convolution_called_twice_folds_at_one_call_only"),
        (UPSTREAM, "test_fuse_is_wrong_on_a_convolution_called_twice_and_we_name_it"),
    ],
    "one conv, two different BNs": [SHARED, (UPSTREAM, "test_fuse_row_by_row")],
    "conv and BN both reused in a chain": [SHARED],
    "conv output has >1 user": [
        SHARED,
        (SHARING, "test_a_convolution_with_two_users_is_computed_twice_when_asked"),
    ],
    "weight tensor shared by two convs (tied Parameter), functional graph": [
        SHARED,
        (SHARING, "test_freezing_a_tied_weight_leaves_the_other_user_its_own"),
    ],
    "BN or conv in training mode": [
        (BN, "test_training_is_skipped_node_by_node"),
        (UPSTREAM, "test_fuse_raises_for_the_whole_model_in_training"),
    ],
    "`track_running_stats=False` / stats None": [(BN, "test_missing_statistics")],
    "BN affine=False": [KINDS, (UPSTREAM, "test_fuse_row_by_row")],
    "conv bias None": [KINDS],
    "ConvTranspose + BN": [KINDS, (UPSTREAM, "test_inductors_folding_is_wrong_and_we_name_it")],
    "ConvTranspose groups>1 + BN": [KINDS],
    "grouped/depthwise conv": [KINDS],
    "conv1d/3d": [KINDS],
    "Linear + BN1d, 2-D input": [KINDS],
    "Linear + BN1d, 3-D input (N,C,L), C == out_features": [
        (BN, "test_linear_before_a_norm_over_another_axis_stays"),
        (UPSTREAM, "test_fuse_row_by_row"),
    ],
    "same, C != out_features": [(BN, "test_linear_before_a_norm_over_another_axis_stays")],
    "F.conv2d(bias=, stride= by keyword) + BN": [SHARED, (UPSTREAM, "test_inductors_folding_is_wrong_and_we_name_it")],
    "functional conv or functional BN": [KINDS, SHARED],
    "subclass of Conv2d; SyncBatchNorm; BN by kwarg": [
        (LEFT, "test_subclasses_and_parametrisations_are_refused"),
        KINDS,
        SHARED,
    ],
    "parametrised/weight_norm conv": [(LEFT, "test_subclasses_and_parametrisations_are_refused")],
    "conv -> dropout/relu -> BN; BN -> conv with zero padding": [
        (LEFT, "test_something_between_stops_the_fold"),
        (LEFT, "test_a_norm_before_a_padded_convolution_stays"),
    ],
    "conv -> BN -> BN": [SHARED],
    "half/bf16 model": [
        (BN, "test_half_precision_folds_in_fp32_and_casts_once"),
        (BN, "test_statistics_in_fp32_beside_half_weights"),
    ],
    "two folded scalar ops in one pass, e.g. conv*2 -> relu -> conv*3": [
        (AFFINE, "test_arithmetic_after_a_convolution"),
        (SHARING, "test_two_folded_layers_get_buffers_of_their_own"),
        (UPSTREAM, "test_inductors_folding_is_wrong_and_we_name_it"),
    ],
    "`torch.add(conv, t, alpha=2)` / `sub(alpha=3)`": [
        (AFFINE, "test_arithmetic_after_a_convolution"),
        (UPSTREAM, "test_inductors_folding_is_wrong_and_we_name_it"),
    ],
    "const / conv(x), const - conv(x)": [(AFFINE, "test_arithmetic_after_a_convolution")],
    "fp64 conv under freezing": [
        (LEFT, "test_fp64_is_folded_and_frozen_here"),
        (UPSTREAM, "test_fp64_under_freezing_is_explained"),
    ],
    "var = 0, eps = 0": [(BN, "test_zero_variance_is_said")],
    "forward hook on conv": [
        (LEFT, "test_a_forward_hook_that_looks_on_stays_and_is_warned_about"),
        (LEFT, "test_hooks_that_could_change_the_numbers_are_refused"),
    ],
    "state_dict": [(LEFT, "test_keys_of_the_state_dict_that_come_and_go_are_told")],
    "requires_grad / parameters": [
        (LEFT, "test_freezing_a_fold_that_needs_a_gradient_is_refused"),
        (BN, "test_the_fold_stays_true_when_parameters_change_and_lets_gradients_through"),
    ],
}

# Section 5.1.
PARTITIONING = {
    "skip path a -> unsupported -> c with a -> c": [
        (CASES, "test_a_path_around_an_unsupported_node_makes_two_islands"),
        (ISLANDS, "test_random_graphs_are_convex_minimal_and_run_the_same"),
    ],
    "two hand-made partitions each valid, jointly cyclic": [(CASES, "test_a_circle_is_named")],
    "re-tagging/trimming after partition (Q/DQ, bookend)": [
        (CASES, "test_nodes_taken_out_of_an_island_leave_no_circle")
    ],
    "interleaved groups": [(CASES, "test_a_circle_is_found_from_either_side")],
    "long chain, alternating support": [(SPEED, "test_partition_2000_alternating_nodes")],
    "multi-output op, getitem not in the support list": [(ISLANDS, "test_getitem_follows_its_producer")],
    'producer unsupported, getitem "supported"': [(ISLANDS, "test_getitem_follows_its_producer")],
    "tuple crossing the boundary": [(CASES, "test_a_boundary_carries_tensors_only")],
    "SymInt / scalar crossing the boundary": [(ISLANDS, "test_a_symbolic_size_crosses_the_boundary")],
    "get_attr (params)": [(ISLANDS, "test_parameters_are_lifted_once")],
    "call_module-only graph with default settings": [(ISLANDS, "test_a_module_only_graph_keeps_its_islands")],
    'default non-compute list "torch.ops.aten.view"': [(ISLANDS, "test_views_alone_are_no_island")],
    "no-op-only island (view, clone, cat of 1)": [(ISLANDS, "test_views_alone_are_no_island")],
    "in-place mutation, unsupported reader earlier in program order": [
        (ISLANDS, "test_a_mutation_is_not_overtaken_by_its_island"),
        (ISLANDS, "test_a_mutation_through_a_view_keeps_its_order_in_dynamo_graphs_too"),
    ],
    "side-effect op without users (`_assert`, print, rng)": [
        (ISLANDS, "test_assertions_without_users_survive"),
        (ISLANDS, "test_random_numbers_keep_their_order"),
    ],
    "independent branches": [(CASES, "test_branches_in_one_island_and_what_they_keep_alive")],
    "nondeterminism": [(CASES, "test_same_bytes_under_any_hash_seed")],
    "fused submodule input order": [(ISLANDS, "test_inputs_come_in_the_callers_order")],
    "control flow (cond/while) branches": [(ISLANDS, "test_control_flow_takes_its_branches_along")],
    "foreign delegate/HOP already in the graph": [
        (CASES, "test_what_another_target_took_is_left_alone"),
        (CASES, "test_a_triton_kernel_of_the_program_is_left_alone"),
    ],
    "dynamic shapes": [(TABLE, "test_symbolic_sizes")],
    "empty graph, output is an input, duplicate output, dead node": [(ISLANDS, "test_small_graphs")],
    "min island size": [
        (ISLANDS, "test_unprofitable_islands_are_dropped_with_their_figure"),
        (CASES, "test_a_node_moves_to_the_later_island_where_fewer_bytes_cross"),
    ],
}

# Section 6, by number.
EXTERNAL = {
    "1": FOLDING["conv called twice, BN after one call only"],
    "2": FOLDING["F.conv2d(bias=, stride= by keyword) + BN"],
    "4": [KINDS],
    "5": [
        KINDS,
        (AFFINE, "test_arithmetic_after_a_convolution"),
        (UPSTREAM, "test_inductors_folding_is_wrong_and_we_name_it"),
    ],
    "6": [(CASES, "test_pytorchs_own_cases")],
    "7": [(CASES, "test_executorchs_cycle_cases")],
    "11": [(ISLANDS, "test_a_mutation_is_not_overtaken_by_its_island")],
    "12": [(TIMING, "test_scale_sim_values")],
    "Extra": [(MATCHER, "test_two_cats_in_a_row")],
}


@cache
def defined_in(file: str) -> frozenset[str]:
    tree = ast.parse((HERE / f"{file}.py").read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("table", [FOLDING, PARTITIONING, EXTERNAL])
def test_every_test_that_is_named_exists(table):
    for row, tests in table.items():
        assert tests, row
        for file, test in tests:
            assert test in defined_in(file), row


@pytest.mark.shared
def test_no_row_of_the_page_is_missing(shared):
    text = (shared / "reference/passes_and_partition.md").read_text()
    parts = dict(zip(*[iter(re.split(r"^(## \d|### 5\.\d)", text, flags=re.MULTILINE)[1:])] * 2, strict=True))
    rows = {
        heading: [
            line.split(" | ")[0].removeprefix("| ") for line in parts[heading].splitlines() if line.startswith("| ")
        ]
        for heading in ("## 4", "### 5.1")
    }
    assert set(rows["## 4"]) - {"Case"} == set(FOLDING)
    assert set(rows["### 5.1"]) - {"Case"} == set(PARTITIONING)
    numbered = re.findall(r"^(\d+|Extra)(?:\.| \()", parts["## 6"], flags=re.MULTILINE)
    assert numbered == list(EXTERNAL)
