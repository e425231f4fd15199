"""Guard trees from both formats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fxscope.recording.guards import Guard, parse_guard_json, parse_guard_text
from fxscope.source import SourceLine

TEXT = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                           # _dynamo/output_graph.py:951 in init_ambient_guards
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x', framelocals_idx=0), type=<class 'torch.Tensor'>, tag_safe=(True, False)
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, size=[4, 64], stride=[64, 1])  # return x + 1  # program/train.py:9 in f
| | +- NO_HASATTR: hasattr(L['x'], '_dynamo_dynamic_indices') == False  # return x + 1  # program/train.py:9 in f
| +- DictGuardManager: source=L['d'], accessed_by=FrameLocalsGuardAccessor(key='d', framelocals_idx=1), type=<class 'dict'>
| | +- KeyManager: GuardManager: source=list(L['d'].keys())[0], accessed_by=x
| | | +- EQUALS_MATCH: list(L['d'].keys())[0] == 'a
b'  # d["a"]  # program/train.py:8 in f
| +- LAMBDA_GUARD: L['x'].size()[0] == 4  # if x.shape[0] == 4:  # program/train.py:7 in f (_dynamo/variables/tensor.py:2606 in evaluate_expr)
+- LAMBDA_GUARD: 2 <= L['y'].size()[0]
Guard latency = 1.14 us
"""


def flat(guards: list[Guard]) -> list[Guard]:
    """A tree's entries, each before those below it."""
    found, waiting = [], guards[::-1]
    while waiting:
        found.append(waiting.pop())
        waiting += found[-1].children[::-1]
    return found


def test_tree() -> None:
    roots = parse_guard_text(TEXT, lambda short: "/home/user/" + short)
    assert [root.expression[:16] for root in roots] == ["RootGuardManager", "2 <= L['y'].size"]
    device, manager, dictionary, shape = roots[0].children
    assert (device.type, device.source, device.depth) == ("DEFAULT_DEVICE", "", 1)
    assert (manager.type, manager.source) == ("", "L['x']")
    match, hasattr_ = manager.children
    assert (match.type, match.source, match.depth) == ("TENSOR_MATCH", "L['x']", 2)
    assert match.expression == "check_tensor(L['x'], Tensor, size=[4, 64], stride=[64, 1])"
    assert match.asked == SourceLine(file="/home/user/program/train.py", line=9, function="f", code="return x + 1")
    assert hasattr_.type == "NO_HASATTR"
    key = dictionary.children[0].children[0]
    assert key.expression.startswith("list(L['d'].keys())[0] == 'a\nb'")
    assert shape.asked is not None
    assert (shape.asked.line, shape.asked.code) == (7, "if x.shape[0] == 4:")
    assert [bool(guard.type) for guard in flat(roots)].count(True) == 6


def test_json_of_2024() -> None:
    text = (
        '[\n{"code": "hasattr(L[\'x\'], \'a\') == False", "stack": null, "user_stack": null},\n'
        '{"code": "check_tensor(L[\'x\'], Tensor)", "stack": null, "user_stack": [{"line": 3}]}\n]'
    )
    line = SourceLine(file="a.py", line=3)
    first, second = parse_guard_json(text, lambda stack: (line,) if stack else ())
    assert (first.type, first.asked) == ("HASATTR", None)
    assert (second.type, second.asked) == ("TENSOR_MATCH", line)
    assert parse_guard_json("no json", lambda stack: ()) == []


@given(st.text(), st.sampled_from(["", "EQUALS_MATCH: ", "RootGuardManager: ", "__SHAPE_GUARD__: "]))
def test_any_text(text: str, kind: str) -> None:
    assert parse_guard_text(text) == []  # no entry begins in it
    whole = f"+- {kind}{text}"
    guards = flat(parse_guard_text(whole))
    assert len(guards) == 1
    assert guards[0].expression in whole


@given(st.lists(st.integers(0, 6)))
def test_depths_make_a_tree(depths: list[int]) -> None:
    """Every entry is in the tree once, under an entry that is less deep."""
    text = "\n".join("| " * depth + f"+- EQUALS_MATCH: x{i} == 1" for i, depth in enumerate(depths))
    roots = parse_guard_text(text)
    guards = flat(roots)
    assert [guard.expression for guard in guards] == [f"x{i} == 1" for i in range(len(depths))]
    assert all(child.depth > guard.depth for guard in guards for child in guard.children)
