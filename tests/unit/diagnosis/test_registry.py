"""The table of graph breaks against the registry of the installed torch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from fxscope.diagnosis.findings import kinds
from fxscope.diagnosis.registry import UNKNOWN, advice, entries, load_toml, lookup


def installed_registry() -> dict[str, list[dict[str, object]]]:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return json.loads((Path(spec.origin).parent / "_dynamo" / "graph_break_registry.json").read_text())


def test_every_id_of_the_installed_torch_has_a_cause_and_an_advice() -> None:
    registry = installed_registry()
    assert len(registry) > 300
    missing = []
    for id_, variants in registry.items():
        entry = lookup(id_, str(variants[0]["Gb_type"]))
        if entry is UNKNOWN or entry.cause not in kinds() or not advice(entry.advice):
            missing.append((id_, variants[0]["Gb_type"]))
    assert not missing


def test_tables_fit_together() -> None:
    used = {entry.advice for entry in entries().values()}
    assert used <= set(load_toml("advice.toml")["advice"])
    assert {entry.cause for entry in entries().values()} <= set(kinds())
    assert len(entries()) >= 593


@pytest.mark.parametrize(
    ("id_", "cause"),
    [
        ("GB0170", "data-dependent-branch"),
        ("GB0124", "data-dependent-value"),
        ("GB0036", "dynamic-output-shape"),
        ("GB0291", "logging"),
        ("GB0014", "rnn-module"),
        ("GB0123", "train-step"),
        ("GB0066", "context-manager"),
        ("GB7000", "frame-skipped"),
        ("GB0083", "hook"),
        ("GB0372", "grad-across-boundary"),
        ("GB0003", "generator"),
        ("GB0098", "disabled-function"),
        ("GB7650", "random-seed"),
        ("GB0179", "unsupported-builtin"),
        ("GB0294", "numpy"),
        ("GB0340", "higher-order-op"),
        ("GB0166", "compiled-autograd"),
    ],
)
def test_well_known_ids(id_: str, cause: str) -> None:
    assert lookup(id_, "").cause == cause


@pytest.mark.parametrize(
    ("title", "cause"),
    [
        ("generic_jump TensorVariable()", "data-dependent-branch"),
        ("Dynamic shape operator (newer wording)", "dynamic-output-shape"),
        ("Unsupported Tensor.item() call with capture_scalar_outputs=False.", "data-dependent-value"),
        ("'skip function graph_break in file /x/decorators.py'", "unsupported-builtin"),
        ("call_function BuiltinVariable(print) [ConstantVariable()] {}", "unsupported-builtin"),
    ],
)
def test_titles_stand_in_for_ids(title: str, cause: str) -> None:
    assert lookup(None, title).cause == cause
    assert lookup("GB9999", title).cause == cause


def test_an_unknown_break_is_said_to_be_one() -> None:
    assert lookup(None, "zzz nothing like this qqq") is UNKNOWN
    assert "this call" in advice(UNKNOWN.advice)


def test_advice_fills_in_names() -> None:
    assert "`time.time`" in advice("skipped-function", name="`time.time`")
    assert "{" not in "".join(advice(key) for key in load_toml("advice.toml")["advice"])
