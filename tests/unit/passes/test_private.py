"""A torch that lacks a private name lacks one feature, and says which in one line."""

from __future__ import annotations

from importlib import import_module

import pytest
import torch
from torch.fx import symbolic_trace

from fxscope.errors import MissingError
from fxscope.launch.compare import compare
from fxscope.passes.aten import decomposition_table, to_aten
from fxscope.passes.cost import Machine
from fxscope.passes.joint import partition_function, to_joint
from fxscope.passes.private import private
from fxscope.passes.stepper import Stepper
from fxscope.passes.upstream import would_do
from fxscope.targets.reference import Inductor

GM = symbolic_trace(lambda x: torch.relu(x) + 1)
X = torch.ones(3)
MACHINE = Machine(bandwidth=1e10, flops=1e11, launch=1e-6, origin="by hand")


def needing():
    return [X.clone().requires_grad_()]


USES = [
    ("torch._decomp.core_aten_decompositions", lambda: decomposition_table("core"), "table of decompositions 'core'"),
    ("torch._inductor.decomposition.select_decomp_table", lambda: decomposition_table("inductor"), "'inductor'"),
    ("torch._decomp.decomposition_table", lambda: decomposition_table("prims"), "'prims'"),
    ("torch._dispatch.python.enable_python_dispatcher", lambda: to_aten(GM, [X]), "lowering to functional ATen"),
    ("torch._subclasses.functional_tensor.FunctionalTensorMode", lambda: to_aten(GM, [X]), "lowering to functional"),
    ("torch._C._ExcludeDispatchKeyGuard", lambda: to_aten(GM, [X]), "lowering to functional ATen"),
    ("torch._functorch.aot_autograd.aot_module_simplified", lambda: to_joint(GM, needing()), "the joint graph"),
    ("torch._functorch.partitioners.default_partition", lambda: partition_function("default"), "partitioner 'default'"),
    ("torch._inductor.utils.run_and_get_code", lambda: Inductor().compile(GM, [X]), "the executor inductor"),
]


@pytest.mark.parametrize(("path", "use", "words"), USES, ids=[path.rsplit(".", 1)[1] for path, _, _ in USES])
def test_a_missing_name_is_one_line(monkeypatch, path, use, words):
    module, name = path.rsplit(".", 1)
    monkeypatch.delattr(import_module(module), name)
    with pytest.raises(MissingError) as caught:
        use()
    message = str(caught.value)
    assert words in message
    assert f"needs {path}, which torch {torch.__version__} does not have" in message
    assert "\n" not in message


def test_the_rest_goes_on(monkeypatch):
    monkeypatch.delattr(import_module("torch._inductor.utils"), "run_and_get_code")
    found = compare(GM, [X], ["eager", "inductor"], seconds=0.01, rounds=3, machine=MACHINE)
    assert [row.status for row in found.rows] == ["ok", "missing"]
    monkeypatch.delattr(import_module("torch._decomp"), "core_aten_decompositions")
    steps = Stepper(GM, "cse,decompose,dce", [X]).run()
    assert [step.status for step in steps] == ["unchanged", "failed"]
    assert "the table of decompositions 'core' needs torch._decomp" in steps[1].error
    monkeypatch.delattr(import_module("torch.fx.experimental.optimization"), "fuse")
    gm = symbolic_trace(torch.nn.Sequential(torch.nn.Linear(3, 3)))
    (row,) = would_do(gm, [torch.ones(2, 3)], ["fx.optimization.fuse"])
    assert row.status == "raised"
    assert "fx.optimization.fuse needs torch.fx.experimental.optimization.fuse" in row.text


def test_what_is_there_is_found():
    assert private("torch._functorch.config", "x") is torch._functorch.config
    with pytest.raises(MissingError, match=r"x needs torch\._nowhere\.thing"):
        private("torch._nowhere.thing", "x")
