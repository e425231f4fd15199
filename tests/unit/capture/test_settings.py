"""Settings and overrides: strange values do not end a recording, and what a recording forces ends with it."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fxscope.capture import overrides
from fxscope.capture.describe import plain
from fxscope.capture.launches import Entry
from fxscope.capture.options import Options
from fxscope.capture.settings import _overrides, changed_settings
from fxscope.capture.tensors import saving
from fxscope.capture.timing import timed


class Strange:
    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


def test_a_setting_that_raises_when_shown_or_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("torch._dynamo.config")
    module._config = {"fake": SimpleNamespace(user_override=Strange(), alias=None, default=1)}
    module._is_default = lambda key: False
    module.fake = Strange()
    monkeypatch.setitem(sys.modules, "torch._dynamo.config", module)
    shown = "<Strange, whose repr raises RuntimeError>"
    assert _overrides("torch._dynamo.config") == (("fake", shown),)
    assert changed_settings("torch._dynamo.config") == {"fake": shown}
    assert plain([Strange(), 1]) == [shown, 1]


def test_overrides_hold_for_their_recording_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def original(model: Any = None, **keywords: Any) -> dict[str, Any]:
        return keywords

    torch: Any = ModuleType("torch")
    torch.compile = original
    first: Any = SimpleNamespace(options=Options(backend="eager"), undo=[])
    second: Any = SimpleNamespace(options=Options(backend="aot_eager"), undo=[])
    active = [first]
    monkeypatch.setattr(overrides, "ACTIVE", active)
    overrides.hook_torch(torch, second)
    assert torch.compile is original  # that recording is over
    overrides.hook_torch(torch, first)
    kept = torch.compile
    assert kept(print) == {"backend": "eager"}
    active.clear()
    first.undo.pop()()
    assert torch.compile is original
    assert kept(print) == {}
    active.append(second)
    overrides.hook_torch(torch, second)
    assert torch.compile(print) == {"backend": "aot_eager"}


def test_wrappers_keep_what_the_backend_put_on_its_result() -> None:
    def result(*args: Any) -> tuple[Any, ...]:
        return args

    result.zero_grads = True  # type: ignore[attr-defined]
    result._torchdynamo_orig_callable = print  # type: ignore[attr-defined]
    gm: Any = SimpleNamespace(graph=SimpleNamespace(nodes=[]))
    entry = Entry("0/0", 0, 0)
    for wrapper in (entry.counting(result), timed(result, entry), saving(result, gm, entry)):
        assert wrapper is not result
        assert wrapper.zero_grads  # type: ignore[attr-defined]
        assert wrapper.__name__ == "result"
        assert not hasattr(wrapper, "_torchdynamo_orig_callable")  # Dynamo would call the function inside instead
