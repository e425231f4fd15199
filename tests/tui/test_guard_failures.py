"""Guards that failed later: found as a comparison of each with each would, with work that grows with their sum."""

from __future__ import annotations

from types import SimpleNamespace as Facts

from fxscope_tui.guard_failures import failures
from hypothesis import given
from hypothesis import strategies as st

NAMES = ("L['x']", "L['self'].layers[1].weight", "G['limit']", "")
PIECES = st.lists(st.sampled_from(["size", "4", "== ", "L['x']", ".", "(", "tensor ", "x", " "]), max_size=5).map(
    "".join
)


def entry(checks, texts):
    guards = [(Facts(type=kind, expression=text, source=name), 0) for kind, text, name in checks]
    records = [
        Facts(rank=None, key=f"0/{number}", failed=[Facts(entry="0/0", guard=text, source=name, kind=kind)])
        for number, (kind, text, name) in enumerate(texts, 1)
    ]
    compile_ = Facts(rank=None, id="0/0", key="0/0")
    return guards, Facts(compile=lambda key: compile_, recompiles=records)


def found(guards, snapshot):
    return {number: [record.key for record, _ in items] for number, items in failures(guards, snapshot, "0/0").items()}


CHECKS = st.tuples(st.sampled_from(["TENSOR_MATCH", "EQUALS_MATCH", ""]), PIECES, st.sampled_from(NAMES))
FAILED = st.tuples(st.just("unknown"), PIECES.filter(bool), st.just(None))


@given(st.lists(CHECKS, max_size=6), st.lists(FAILED, max_size=6))
def test_a_failure_belongs_to_the_first_guard_that_holds_its_text(checks, texts):
    wanted: dict[int, list[str]] = {}
    for number, (_, text, _) in enumerate(texts, 1):
        at = next((n for n, (kind, check, _) in enumerate(checks) if kind and text in check), None)
        if at is not None:
            wanted.setdefault(at, []).append(f"0/{number}")
    assert found(*entry(checks, texts)) == wanted


def test_a_failure_told_in_other_words_belongs_to_the_guard_of_its_source_and_kind():
    checks = [("TYPE_MATCH", "___check_type_id(x)", "L['x']"), ("TENSOR_MATCH", "check_tensor(x)", "L['x']")]
    size = ("size", "tensor 'x' size mismatch at index 0. expected 4, actual 6", "L['x']")
    assert found(*entry(checks, [size])) == {1: ["0/1"]}
    assert found(*entry(checks[:1], [size])) == {0: ["0/1"]}  # no guard of that kind: the one that looks at it
    assert found(*entry(checks, [("size", "", "L['y']")])) == {}
    mode = [*checks, ("GRAD_MODE", "", "")]
    assert found(*entry(mode, [("grad_mode", "grad_mode differs", None)])) == {2: ["0/1"]}


def test_many_failures_of_many_guards_do_not_compare_each_with_each():
    compared = 0

    class Check(str):
        __slots__ = ()

        def __contains__(self, text):
            nonlocal compared
            compared += 1
            return super().__contains__(text)

    checks = [("TENSOR_MATCH", Check(f"check_tensor(layers[{n}], size=[{n}, 16])"), f"L[{n}]") for n in range(2000)]
    texts = [("size", f"tensor 'x' size mismatch at index 0. expected 4, actual {n}", "L[7]") for n in range(300)]
    texts += [("size", f"layers[{n}], size=", None) for n in range(300)]
    result = found(*entry(checks, texts))
    assert len(result[7]) == 301
    assert all(len(result[n]) == 1 for n in range(300) if n != 7)
    assert compared < 3000  # each with each would be 1,200,000
