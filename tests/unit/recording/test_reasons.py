"""Failed guards taken apart: one of each wording that torch has for them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fxscope.recording.recompiles import parse_reason, read_reasons, source_name

CASES = [
    ("tensor 'x' size mismatch at index 0. expected 4, actual 6", "size", "L['x']", "4", "6"),
    ("tensor 'args[0]' size mismatch at index 1. expected 16, actual 7", "size", "L['args'][0]", "16", "7"),
    ("tensor 'x' stride mismatch at index 2. expected 1, actual 32", "stride", "L['x']", "1", "32"),
    ("tensor 'x' dtype mismatch. expected Float, actual Half", "dtype", "L['x']", "Float", "Half"),
    ("tensor 'x' rank mismatch. expected 2, actual 3", "rank", "L['x']", "2", "3"),
    ("tensor 'x' requires_grad mismatch. expected requires_grad=1", "requires_grad", "L['x']", "1", None),
    (
        "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, A), actual DispatchKeySet(CPU)",
        "dispatch_key",
        "L['x']",
        "DispatchKeySet(CPU, A)",
        "DispatchKeySet(CPU)",
    ),
    (
        "tensor 'x' Tensor device index mismatch. Expected device index to be 0, but got 1",
        "device",
        "L['x']",
        "0",
        "1",
    ),
    (
        "expected type of 'x' to be a tensor type, ' but found <class 'NoneType'>",
        "type",
        "L['x']",
        "a tensor type",
        "<class 'NoneType'>",
    ),
    ("self.calls == 0", "number", "L['self'].calls", "0", None),
    ("temperature == 1.0", "number", "L['temperature']", "1.0", None),
    ("self.active == 'style0'", "string", "L['self'].active", "'style0'", None),
    ("fn._modules['1'].training == True", "bool", "L['fn']._modules['1'].training", "True", None),
    ("G['FLAG'] == 3", "number", "G['FLAG']", "3", None),
    ("args[2] is None", "none", "L['args'][2]", "None", None),
    ("mask is not None", "none", "L['mask']", "not None", None),
    ("len(feats) != 2", "length", "L['feats']", "2", None),
    ("len(args) == 7", "length", "L['args']", "7", None),
    ("not args", "length", "L['args']", "0", None),
    (
        "___check_type_id(module, 94780), type=<class 'a.b.Net'>",
        "type",
        "L['module']",
        "<class 'a.b.Net'>",
        None,
    ),
    ("___check_obj_id(fn.__code__, 87)", "identity", "L['fn'].__code__", "87", None),
    ("not ___dict_contains('return_dict', kwargs)", "keys", "L['kwargs']", "'return_dict' absent", None),
    ("list(dict.keys(d)) == ['a', 'b']", "keys", "L['d']", "['a', 'b']", None),
    ("hasattr(x, '_dynamo_dynamic_indices') == False", "attribute", "L['x']", "'_dynamo_dynamic_indices' absent", None),
    ("2 <= chosen.size()[0]", "shape", "L['chosen'].size()[0]", "2 <= chosen.size()[0]", None),
    (
        "codes.stride()[0] == codes.size()[2]",
        "shape",
        "L['codes'].stride()[0]",
        "codes.stride()[0] == codes.size()[2]",
        None,
    ),
    ("GLOBAL_STATE changed: grad_mode", "grad_mode", "grad_mode", None, None),
    ("GLOBAL_STATE changed: autocast(cpu)_enabled", "autocast", "autocast(cpu)_enabled", None, None),
    ("GLOBAL_STATE changed: deterministic_algorithms", "global_state", "deterministic_algorithms", None, None),
    ("utils_device.CURRENT_DEVICE == None", "default_device", None, "None", None),
    ("x.dtype == torch.float32", "dtype", "L['x'].dtype", "torch.float32", None),
    (
        (
            "BACKEND_MATCH failure: torch.compile detected different backend callables. Cached backend: A(id=0x1). "
            "New backend: B(id=0x2). If this is unexpected, wrap it."
        ),
        "backend",
        None,
        "A(id=0x1)",
        "B(id=0x2)",
    ),
]


@pytest.mark.parametrize(("guard", "kind", "source", "expected", "actual"), CASES, ids=[case[0][:40] for case in CASES])
def test_kinds(guard: str, kind: str, source: str | None, expected: str | None, actual: str | None) -> None:
    found = parse_reason(f"3/0: {guard}")
    assert (found.entry, found.guard, found.kind, found.source, found.expected, found.actual) == (
        "3/0",
        guard,
        kind,
        source,
        expected,
        actual,
    )


def test_dimension() -> None:
    assert parse_reason("0/0: tensor 'k' size mismatch at index 1. expected 5, actual 6").index == 1


def test_line_that_asked() -> None:
    found = parse_reason(
        "0/7: self.calls == 7                                          # self.calls += 1  # cases/net.py:22 in forward "
        '(HINT: integers are static)\nUser stack trace:\n  File "/home/me/cases/net.py", line 22, in forward\n    self.calls += 1'
    )
    assert (found.guard, found.asked_file, found.asked_line) == ("self.calls == 7", "/home/me/cases/net.py", 22)


def test_line_that_asked_of_a_shape_guard() -> None:
    found = parse_reason(
        "0/1: 9 <= x.size()[0]  # if x.shape[0] > 8:  # train.py:215 in f (_dynamo/variables/tensor.py:2606 in evaluate_expr)"
    )
    assert (found.asked_file, found.asked_line) == ("train.py", 215)


def test_compiled_autograd_entry_and_old_form() -> None:
    assert parse_reason("!2/0/1: x == 1").entry == "!2/0/1"
    old = parse_reason("tensor 'L['x']' size mismatch at index 0. expected 3, actual 4")
    assert (old.entry, old.kind, old.source, old.expected) == ("", "size", "L['x']", "3")


def test_reasons_bare_or_listed() -> None:
    assert read_reasons("0/0: x == 1\nUser stack trace:\n  ...") == ["0/0: x == 1\nUser stack trace:\n  ..."]
    assert read_reasons('[\n"0/1: a",\n"0/0: b\\nc"\n]') == ["0/1: a", "0/0: b\nc"]
    assert read_reasons('"0/0: quoted"') == ["0/0: quoted"]
    assert read_reasons("[no json") == ["[no json"]
    assert read_reasons("") == []


@given(st.text())
def test_any_text_gives_a_record(text: str) -> None:
    assert parse_reason(text).kind


@given(st.lists(st.text(), min_size=2))
def test_listed_reasons_round_trip(reasons: list[str]) -> None:
    payload = "[\n" + ",\n".join(json.dumps(reason) for reason in reasons) + "\n]"
    expected = [reason.encode("utf-8", "replace").decode() for reason in reasons]
    assert read_reasons(payload) == expected


def test_source_name_leaves_full_sources_alone() -> None:
    for name in ("L['x']", "G['y'].z", "type(L['x'])", "len(x)", "___check(x)"):
        assert source_name(name) == name
