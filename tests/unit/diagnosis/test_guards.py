"""Failed guards as torch words them: the cause and the user's name for what was checked."""

from __future__ import annotations

import pytest

from fxscope.diagnosis.guards import cause_of_guard, name_of
from fxscope.recording.recompiles import parse_reason


@pytest.mark.parametrize(
    ("text", "ids", "name"),
    [
        ("0/0: self.calls == 0", ("changing-attribute",), "self.calls"),
        ("0/0: self.layer_idx == 3", ("changing-attribute", "shared-code"), "self.layer_idx"),
        ("0/0: self.active == 'style0'", ("changing-attribute",), "self.active"),
        ("0/0: temperature == 1.0", ("changing-number",), "temperature"),
        ("2/0: self.param_groups[0]['lr'] == 0.01", ("changing-number",), "self.param_groups[0]['lr']"),
        ("0/0: not G['__import___main__'].acts", ("container-size",), "acts"),
        ("0/0: G['__import_torch_dot_nn'].flag == 3", ("changing-attribute", "changing-global"), "torch.nn.flag"),
        ("0/0: G['STEP'] == 3", ("changing-global",), "STEP"),
        ("0/0: G['cfg'].scale == 3", ("changing-attribute", "changing-global"), "cfg.scale"),
        ("0/0: ((-1)*t) == (-0.2)", ("changing-number",), "t"),
        ("0/1: (step % 10) != 0", ("changing-number",), "(step % 10)"),
        ("0/0: not hasattr(p, 'momentum')", ("changing-attribute",), "p.momentum"),
        ("0/0: k is q", ("tensor-aliasing",), "k"),
        (
            "0/0: GLOBAL_STATE changed: grad_mode autocast(cpu)_enabled",
            ("grad-mode", "autocast"),
            "grad_mode autocast(cpu)_enabled",
        ),
        ("0/0: tensor '___from_numpy(a)' size mismatch at index 0. expected 3, actual 4", ("dynamic-size",), "a"),
        (
            "0/0: tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, AutogradCPU), actual DispatchKeySet(CPU, FuncTorchBatched, AutogradCPU)",
            ("tensor-type",),
            "x",
        ),
        (
            "0/0: tensor 'w' size mismatch at index 1. expected 2, actual 3. Guard failed on a parameter, consider using",
            ("shared-code", "dynamic-size"),
            "w",
        ),
        ("0/0: len(feats) != 2", ("container-size",), "feats"),
        ("1/0: ___stack0 == 3", ("break-value",), "___stack0"),
        (
            "1/0: tensor '___stack0' size mismatch at index 0. expected 3, actual 4",
            ("dynamic-size", "break-value"),
            "the tensor that crosses the graph break (___stack0)",
        ),
        ("0/1: ___check_metadata_140465515147840_c0/1", ("tensor-type",), ""),
        ("0/0: len(boxes) == 3", ("container-size",), "boxes"),
        ("0/0: list(dict.keys(d))[1] == 'b'", ("container-size",), "list(dict.keys(d))[1]"),
        ("0/0: KeyError on kw['y']", ("container-size",), "kw"),
        ("0/0: tensor 'k' size mismatch at index 1. expected 5, actual 6", ("dynamic-size",), "k"),
        ("0/2: tensor 'x' size mismatch at index 0. expected 1, actual 0", ("size-zero-one", "dynamic-size"), "x"),
        ("0/1: 2 <= chosen.size()[0]", ("size-zero-one",), "chosen"),
        ("0/1: (x.size()[0] % 4) == 0", ("shape-expression",), "x"),
        ("0/1: 9 <= x.size()[0]", ("shape-expression",), "x"),
        (
            "0/0: tensor 'fn._parameters['bias']' size mismatch at index 0. expected 2, actual 3",
            ("shared-code",),
            "fn.bias",
        ),
        ("0/0: tensor 'x' stride mismatch at index 0. expected 3, actual 1", ("layout",), "x"),
        ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", ("tensor-rank", "dynamic-size"), "x"),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Double", ("dtype-or-device",), "x"),
        ("0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0", ("grad-mode",), "x"),
        ("0/0: GLOBAL_STATE changed: grad_mode", ("grad-mode",), "grad_mode"),
        ("0/0: GLOBAL_STATE changed: autocast(cpu)_enabled", ("autocast",), "autocast(cpu)_enabled"),
        ("0/0: GLOBAL_STATE changed: default_dtype", ("global-state",), "default_dtype"),
        ("0/0: ___check_torch_function_mode_stack()", ("function-mode",), ""),
        (
            "0/0: expected type of 'w' to be a tensor type, ' but found <class 'torch.nn.parameter.Parameter'>",
            ("tensor-type",),
            "w",
        ),
        ("0/0: expected type of 'm' to be a tensor type, ' but found <class 'NoneType'>", ("none-or-tensor",), "m"),
        ("0/0: 'NoneType' object has no attribute 'size'", ("none-or-tensor",), ""),
        ("0/0: m is None", ("none-or-tensor",), "m"),
        ("0/0: fn._modules['1'].training == True", ("train-eval",), "fn[1].training"),
        (
            "0/0: BACKEND_MATCH failure: torch.compile detected different backend callables. Cached backend: a. New backend: b. If this is",
            ("new-compile-each-call",),
            "",
        ),
        ("0/0: ___check_obj_id(act, 140192), type=<class 'function'>", ("object-identity",), "act"),
        ("0/0: ___check_type_id(self, 140192), type=<class '__main__.Layer'>", ("shared-code",), "self"),
        ("2/0: ___stack0 == 0.97", ("break-value",), "___stack0"),
        ("2/0: ___stack0[1] == 4", ("break-value",), "___stack0[1]"),
        ('0/0: Duplicate tensors found: ["x", "y"]', ("tensor-aliasing",), ""),
        ("0/0: something that nobody has seen", ("other-guard",), ""),
    ],
)
def test_cause(text: str, ids: tuple[str, ...], name: str) -> None:
    cause = cause_of_guard(parse_reason(text))
    assert cause.ids == ids
    assert cause.name == name


def test_a_number_in_a_resumed_frame_came_over_the_break() -> None:
    assert cause_of_guard(parse_reason("2/0: cut == 0.5"), resumed=True).ids == ("break-value", "changing-number")


def test_names_are_the_users() -> None:
    assert name_of("L['self']._modules['head']._parameters['weight']") == "self.head.weight"
    assert name_of("L['x'].size()[0]") == "x"
    assert name_of(None) == ""
