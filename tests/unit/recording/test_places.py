"""Whose line it is, and what an error text says of its place and phase."""

from __future__ import annotations

import pytest

from fxscope.recording.failures import limit_of, phase_of, place_of, user_stack_of
from fxscope.recording.metrics import interval, keep, phases, seconds, union_seconds
from fxscope.recording.tracebacks import read_stack
from fxscope.recording.userline import deepest_user_line, is_torch_file, is_user_file
from fxscope.source import SourceLine


@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("/home/me/train.py", True),
        ("train.py", True),
        ("C:\\work\\train.py", True),
        ("/tmp/ipykernel_12/345.py", True),
        ("<stdin>", True),
        ("<ipython-input-3-abc>", True),
        ("<string>", True),
        ("<frozen runpy>", False),
        ("<eval_with_key>.5", False),
        ("", False),
        ("/venv/lib/python3.11/site-packages/transformers/utils/generic.py", False),
        ("/usr/lib/python3/dist-packages/x.py", False),
        ("/usr/lib/python3.12/contextlib.py", False),
        ("/opt/conda/lib/python3.10/threading.py", False),
        ("C:\\Python311\\Lib\\contextlib.py", False),
        ("C:\\v\\Lib\\site-packages\\torch\\nn\\modules\\module.py", False),
        ("/data/users/me/pytorch/torch/_dynamo/eval_frame.py", False),
        ("/data/users/me/pytorch/test/dynamo/test_misc.py", True),
        ("/src/fxscope/capture/launch.py", False),
    ],
)
def test_user_files(path: str, user: bool) -> None:
    assert is_user_file(path) is user


def test_torch_files() -> None:
    assert is_torch_file("/v/lib/python3.11/site-packages/torch/nn/modules/module.py")
    assert not is_torch_file("/v/lib/python3.11/site-packages/torchvision/ops.py")


def test_deepest_user_line() -> None:
    own = SourceLine(file="/home/me/net.py", line=7)
    library = SourceLine(file="/v/lib/python3.11/site-packages/timm/x.py", line=3)
    generated = SourceLine(file="<string>", line=2, function="__init__")
    assert deepest_user_line([SourceLine(file="/home/me/train.py", line=1), own, library, generated]) is own
    assert deepest_user_line([library]) is None
    assert place_of((library,)) is library
    assert place_of(()) is None


@pytest.mark.parametrize(
    ("kind", "reason", "limit"),
    [
        (
            "Unsupported",
            "Dynamo recompile limit exceeded\n  exceeding the recompile_limit cache size",
            "recompile_limit",
        ),
        ("Unsupported", "Dynamo recompile limit exceeded: accumulated_recompile_limit", "accumulated_recompile_limit"),
        ("CacheLimitExceeded", "cache_size_limit reached", "recompile_limit"),
        ("RecompileLimitExceeded", "accumulated_cache_size_limit reached", "accumulated_recompile_limit"),
        ("FailOnRecompileLimitHit", "Hard failure due to fullgraph=True", "recompile_limit"),
        ("Unsupported", "call_method NNModuleVariable()", None),
        ("BackendCompilerFailed", "limit of my backend reached", None),
    ],
)
def test_limits_of_all_versions(kind: str, reason: str, limit: str | None) -> None:
    assert limit_of(kind, reason) == limit


def test_phases_of_exceptions() -> None:
    assert phase_of("BackendCompilerFailed") == "backend"
    assert phase_of("torch.fx.experimental.symbolic_shapes.ConstraintViolationError") == "constraint"
    assert phase_of("TorchRuntimeError") == "dynamo"


def test_user_stack_of_error_texts() -> None:
    fake = (
        "torch._dynamo.exc.TorchRuntimeError: no fake impl\n\nfrom user code:\n"
        '   File "/home/me/net.py", line 23, in f\n    return op(x)\n           ^^^^^\n'
        '  File "/v/lib/python3.11/site-packages/torch/_library/custom_ops.py", line 863, in __call__\n    return self._op(x)\n\n'
        "Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n"
    )
    assert [line.line for line in user_stack_of(fake)] == [23, 863]
    place = place_of(user_stack_of(fake))
    assert place == SourceLine(file="/home/me/net.py", line=23, function="f", code="return op(x)")
    constraint = 'Constraints violated\n\nUser stack:\n  File "/home/me/net.py", line 13, in heads\n    return x.reshape(4)\n\n\n'
    assert [line.line for line in user_stack_of(constraint)] == [13]
    assert user_stack_of("nothing of the kind") == ()


def test_stacks_without_code_lines() -> None:
    text = '  File "a.py", line 1, in f\n  File "b.py", line 2\n    x = 1\n    ~~^~~\n'
    assert read_stack(text) == (
        SourceLine(file="a.py", line=1, function="f"),
        SourceLine(file="b.py", line=2, code="x = 1"),
    )


def test_numbers_in_both_notations() -> None:
    assert seconds({"entire_frame_compile_time_s": 1.5}, "entire_frame_compile") == 1.5
    assert seconds({"duration_us": 2_000_000}, "entire_frame_compile") == 2.0
    assert seconds({"entire_frame_compile_time_s": None}, "entire_frame_compile") is None
    assert seconds({"entire_frame_compile_time_s": float("nan")}, "entire_frame_compile") is None
    assert seconds({"entire_frame_compile_time_s": 1e308}, "entire_frame_compile") is None  # two of them are infinite
    assert seconds({"entire_frame_compile_time_s": -(10**400)}, "entire_frame_compile") is None
    assert interval({"start_time_us": 1_000_000, "end_time_us": 500_000}) == (1.0, 1.0)  # the clock was set back
    assert interval({"start_time": 5.0, "entire_frame_compile_time_s": 2.0}) == (5.0, 7.0)
    assert keep({"a": 1, "b": None, "dynamo_config": "{}"}) == {"a": 1}


def test_phases_are_disjoint() -> None:
    values = {"entire_frame_compile_time_s": 10.0, "backend_compile_time_s": 7.0, "inductor_compile_time_s": 4.0}
    assert phases(values, has_aot=True) == {"dynamo": 3.0, "aot": 3.0, "inductor": 4.0}
    assert phases({**values, "inductor_compile_time_s": None}, has_aot=False) == {"dynamo": 3.0, "backend": 7.0}
    assert phases({"inductor_compile_time_s": 4.0}, has_aot=True) == {}


def test_union_of_intervals() -> None:
    assert union_seconds([(0, 2), (1, 3), (5, 6), (5.5, 5.6)]) == 4
    assert union_seconds([]) == 0
