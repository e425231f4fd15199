"""Every kind of problem, made on purpose with real torch: exact ids, the right line, and the fix that mends it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fxscope
from fxscope.diagnosis.diagnose import diagnose
from fxscope.diagnosis.findings import Finding

pytestmark = pytest.mark.timeout(900)  # the first test records all problems, on a machine that may be busy
Problems = Callable[[str], tuple[Path, dict[str, Any]]]
# Their fix is to do the expensive thing knowingly (a limit raised to the number of variants), or mends one finding of two.
_STAYS = {"thread_config.fixed", "one_cycle_momentum.fixed"}


def found_in(folder: Path, name: str) -> list[Finding]:
    logs = list((folder / name).iterdir()) if (folder / name).is_dir() else []
    return diagnose(fxscope.open(folder / name)) if logs else []


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(agree(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5)
    return bool(a == b)


@pytest.mark.parametrize("script", ["breaks", "recompiles"])
def test_ids_are_exactly_those_expected(problems: Problems, script: str) -> None:
    folder, facts = problems(script)
    wrong = {}
    for name, fact in facts.items():
        if name.endswith(".fixed"):
            continue
        ids = {id_ for finding in found_in(folder, name) for id_ in finding.ids}
        if ids != set(fact["expect"]):
            wrong[name] = (sorted(ids), sorted(fact["expect"]))
    assert not wrong


@pytest.mark.parametrize("script", ["breaks", "recompiles"])
def test_a_finding_names_the_users_line(problems: Problems, script: str) -> None:
    folder, facts = problems(script)
    wrong = {}
    for name, fact in facts.items():
        found = found_in(folder, name)
        if fact["here"] and not name.endswith(".fixed") and not {finding.line for finding in found} & set(fact["here"]):
            wrong[name] = ([finding.line for finding in found], fact["here"])
        for line in fact["asked"] if not name.endswith(".fixed") else []:
            if not any(
                f":{line}" in finding.cause + finding.fix or f"line {line}" in finding.cause + finding.fix
                for finding in found
            ):
                wrong[name] = ("asked", line)
    assert not wrong


@pytest.mark.parametrize("script", ["breaks", "recompiles"])
def test_the_fix_mends_it_and_keeps_the_result(problems: Problems, script: str) -> None:
    """Advice never lies: every problem has its fix next to it, run by the same harness."""
    folder, facts = problems(script)
    left, changed = {}, []
    for name, fact in facts.items():
        if fact["error"]:
            changed.append((name, fact["error"]))
        if name.endswith(".fixed"):
            findings = [finding.ids for finding in found_in(folder, name) if finding.severity != "info"]
            if findings and name not in _STAYS:
                left[name] = findings
        elif fact["same"] and not agree(fact["result"], facts[f"{name}.fixed"]["result"]):
            changed.append((name, fact["result"], facts[f"{name}.fixed"]["result"]))
    assert not left
    assert not changed


@pytest.mark.parametrize(
    ("script", "name", "words"),
    [
        ("breaks", "branch", ["torch.where(y.sum() > 0, y + 1, y - 1)"]),
        ("breaks", "branch_any", ["x = torch.where(torch.isnan(x).any(), torch.nan_to_num(x), x)"]),
        ("breaks", "item", ["capture_scalar_outputs", "x.max()"]),
        ("breaks", "boolean_mask", ["torch.where(y > 0, y, 0).sum()"]),
        ("breaks", "repeat_interleave", ["output_size="]),
        ("breaks", "print_shape", ["if not torch.compiler.is_compiling():", "reorderable_logging_functions"]),
        ("breaks", "logger", ["ignore_logging_functions.add(logging.Logger.debug)"]),
        ("breaks", "warn", ["reorderable_logging_functions.add(warnings.warn)"]),
        ("breaks", "gru", ["allow_rnn = True"]),
        ("breaks", "backward_inside", ["# outside:\n    loss.backward()"]),
        ("breaks", "deepcopy_config", ["y.clone()"]),
        ("breaks", "no_fake", ["register_fake"]),
        ("breaks", "module_hook", ["compiled_autograd = True"]),
        ("breaks", "custom_context", ["outside of the compiled function"]),
        ("breaks", "disabled", ["torch.compiler.disable", "helper"]),
        ("recompiles", "module_string", ["self.mode", "recompile_limit"]),
        ("recompiles", "global_int", ["torch.tensor(COUNTER)"]),
        ("recompiles", "list_length", ["torch.stack(xs)"]),
        ("recompiles", "list_that_the_code_grows", ["self.history.append(y.mean())", "after the call"]),
        ("breaks", "loop_over_values", ["x[order]"]),
        ("recompiles", "batch_size", ["torch._dynamo.mark_dynamic(x, 0)"]),
        ("recompiles", "dynamic_false", ["dynamic=False", "dynamic=None"]),
        ("recompiles", "one_row", ["mark_unbacked(x, 0)"]),
        ("recompiles", "loop_over_time", ["for t in range(1, x.shape[0]):"]),
        ("recompiles", "stride_flip", ["x.contiguous()"]),
        ("recompiles", "one_cycle_momentum", ["betas=(torch.tensor(0.95), torch.tensor(...))", "cycle_momentum=False"]),
        ("recompiles", "configuration_replaced", ["state.scale = torch.tensor(0.1)", "dynamic=True"]),
        ("recompiles", "enum_argument", ["members of an Enum", "outside of the compiled"]),
        ("recompiles", "expert_by_number", ["torch.stack([m.weight for m in experts])", "W.index_select(0, index)[0]"]),
        ("recompiles", "diffusion_time", ["torch.exp for math.exp"]),
        ("recompiles", "several_flags", ["torch.where(flags[i], a, b)"]),
        ("recompiles", "crop_sizes", ["torch.compile(..., dynamic=True)"]),
        ("recompiles", "counter_of_an_inner_module", ["self.count = 0\nafter:\n    self.register_buffer('count'"]),
        (
            "recompiles",
            "rope_table_grows",
            ["whenever `x.shape[0] > self.cached`", "in __init__, for the largest case"],
        ),
        ("recompiles", "muon_over_shapes", ["force_parameter_static_shapes = False", "w.detach()"]),
        ("recompiles", "marked_static", ["take torch._dynamo.mark_static(x, 0) (line "]),
        ("recompiles", "arrays_of_numpy", ["torch.from_numpy(a)"]),
        ("recompiles", "square_by_chance", ["duck sizing", "use_duck_shape = False"]),
        ("recompiles", "search_over_models", ["They differ in self.width", "torch._dynamo.reset()"]),
        ("recompiles", "total_begins_as_a_number", ["total = torch.tensor(0.0)"]),
        ("recompiles", "vmap_around_it", ["torch.compile(torch.vmap(f))"]),
        ("recompiles", "registry_grows", ["REGISTRY is a container of the module"]),
        ("recompiles", "mask_is_made_late", ["self.mask = torch.ones(6)", "Make it in __init__"]),
        ("recompiles", "layers_unfreeze", ["torch._dynamo.reset() at the beginning of each"]),
        ("recompiles", "warm_up_in_another_mode", ["torch.inference_mode in some calls"]),
        ("recompiles", "evaluation_without_autocast", ["same torch.autocast as training"]),
        ("recompiles", "optional_first", ["mask is None in some calls"]),
        ("recompiles", "compile_each_call", ["# once, outside"]),
        ("recompiles", "marked_but_fixed", ["x.shape[0]", "maybe_mark_dynamic(x, 0)"]),
        ("recompiles", "thread_config", ["torch._dynamo.config.recompile_limit = 64"]),
    ],
)
def test_the_advice_speaks_of_the_users_code(problems: Problems, script: str, name: str, words: list[str]) -> None:
    folder, facts = problems(script)
    if facts[name]["older"]:
        pytest.skip("this torch shows another problem there")
    fixes = "\n".join(finding.fix for finding in found_in(folder, name))
    for word in words:
        assert word in fixes, fixes


def test_a_usual_training_loop_is_no_fault(problems: Problems) -> None:
    """Last batches, evaluation between epochs: facts at most."""
    folder, _ = problems("recompiles")
    assert {finding.severity for finding in found_in(folder, "usual_training")} == {"info"}
