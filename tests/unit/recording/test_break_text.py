"""Every form in which torch has written a graph break, 2024 to 2.15."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fxscope.recording.breaks import parse_break

BODY = """Unsupported Tensor.item() call
  Explanation: Dynamo does not support tracing `Tensor.item()`.
    It goes on here.
  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`
  Hint: Or do not.

  Developer debug context: call_method TensorVariable() item () {}

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0124.html"""
STACK = """  File "/home/me/train.py", line 20, in <module>
    step(x)
  File "/home/me/net.py", line 7, in forward
    return x.item()
           ^^^^^^^^
"""
TRACEBACK = """Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/_dynamo/exc.py", line 1, in unimplemented
    raise Unsupported(msg)
torch._dynamo.exc.Unsupported: """


def check(text: str, *, skipped: bool) -> None:
    found = parse_break(text)
    assert (found.file, found.line) == ("/home/me/net.py", 7)
    assert (found.function, found.code) == ("forward", "return x.item()")
    assert found.kind == "Unsupported Tensor.item() call"
    assert found.gb_id == "GB0124"
    assert found.explanation == "Dynamo does not support tracing `Tensor.item()`.\n    It goes on here."
    assert found.hints == ["Set `torch._dynamo.config.capture_scalar_outputs = True`", "Or do not."]
    assert found.context == "call_method TensorVariable() item () {}"
    assert found.skipped_frame is skipped
    assert [frame.line for frame in found.stack] == [20, 7]


def test_resumable_break() -> None:
    check(
        f"Graph break in user code at /home/me/net.py:7\nGraph Break Reason: {BODY}\nUser code traceback:\n{STACK}\n"
        f"{TRACEBACK}{BODY}\n",
        skipped=False,
    )


def test_prefixes_are_no_kind() -> None:
    for prefix, skipped in (
        ("Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):", False),
        (
            (
                "Encountered graph break that we cannot resume from. Compiling up to the previous resumable state, then "
                "skipping the rest of the function. Graph break encountered:"
            ),
            False,
        ),
        (
            (
                "Failed to handle graph break gracefully. Skipping the function and falling back to eager. Graph break "
                "encountered:"
            ),
            True,
        ),
    ):
        check(
            f"Graph break in user code at /home/me/net.py:7\nGraph Break Reason: {prefix}\n\n{BODY}\n\n"
            f"User code traceback:\n{STACK}\n{TRACEBACK}{BODY}\n",
            skipped=skipped,
        )


def test_skip_written_by_convert_frame() -> None:
    check(
        "Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.\n"
        "torch.compile will skip tracing the frame forward (/home/me/net.py line 5) and fall back to eager.\n"
        f"The graph break occurred in the following user code:\n{STACK}\n{TRACEBACK}{BODY}\n",
        skipped=True,
    )


def test_skip_without_a_stack_falls_back_to_the_frame() -> None:
    found = parse_break(
        "Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.\n"
        "torch.compile will skip tracing the frame forward (/home/me/net.py line 5) and fall back to eager.\n"
        f"The graph break occurred in the following user code:\n\n{TRACEBACK}{BODY}\n"
    )
    assert (found.file, found.line, found.function) == ("/home/me/net.py", 5, "forward")
    assert found.gb_id == "GB0124"


def test_wont_convert() -> None:
    found = parse_break(
        "WON'T CONVERT forward /home/me/my net.py line 12\n"
        "========== TorchDynamo Stack Trace ==========\n"
        f"{TRACEBACK}backend does not do this\n"
    )
    assert (found.file, found.line, found.function) == ("/home/me/my net.py", 12, "forward")
    assert found.skipped_frame
    assert found.kind == "backend does not do this"


def test_suppressed_duplicate() -> None:
    found = parse_break(
        "Graph break (user stack suppressed due to duplicate graph break) in user code at /home/me/net.py:7\n"
        f"Graph Break Reason: {BODY}\n"
    )
    assert found.duplicate
    assert (found.file, found.line, found.kind) == ("/home/me/net.py", 7, "Unsupported Tensor.item() call")


def test_form_of_2024() -> None:
    found = parse_break(
        "Graph break in user code at /home/me/net.py:7\n"
        "Reason: Unsupported: call_function BuiltinVariable(print) [TensorVariable()] {}\n"
        f"User code traceback:\n{STACK}\n{TRACEBACK}call_function\n"
    )
    assert found.kind == "call_function BuiltinVariable(print) [TensorVariable()] {}"
    assert found.gb_id is None
    assert found.hints == []


def test_path_with_spaces_and_drive() -> None:
    found = parse_break("Graph break in user code at C:\\Users\\my self\\net.py:7\nGraph Break Reason: x\n")
    assert (found.file, found.line) == ("C:\\Users\\my self\\net.py", 7)


@given(st.text())
def test_any_text_gives_a_record(text: str) -> None:
    parse_break(text)
    found = parse_break(f"Graph break in user code at /home/me/net.py:7\nGraph Break Reason: {text}\n")
    assert (found.file, found.line) == ("/home/me/net.py", 7)


@given(st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",)), min_size=1, max_size=60))
def test_any_title_is_the_kind(title: str) -> None:
    title = title.strip()
    if not title:
        return
    found = parse_break(
        f"Graph break in user code at /a.py:1\nGraph Break Reason: {title}\n  Explanation: e\n\nUser code traceback:\n"
    )
    assert found.kind == title.removeprefix("Unsupported: ").strip()
    assert found.explanation == "e"
