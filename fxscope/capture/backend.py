"""The backend ``fxscope``: ``torch.compile(f, backend="fxscope")`` records, and compiles with Inductor.

PyTorch takes the attribute ``fxscope`` of this module when a program first asks for the backend by name, which is before
it compiles anything; taking it is what begins the recording, and importing this module does nothing.
"""

from __future__ import annotations

from typing import Any


def _compile(gm: Any, example_inputs: list[Any], *, options: dict[str, Any] | None = None, **keywords: Any) -> Any:
    """Compile with the backend that ``options={"inner": NAME}`` names, else Inductor; other options go to it."""
    from torch._dynamo.backends.registry import lookup_backend

    rest = dict(options or {})
    inner = rest.pop("inner", "inductor")
    if inner == "inductor":
        from torch._inductor import list_mode_options
        from torch._inductor.compile_fx import compile_fx

        mode = keywords.pop("mode", None)
        settings = list_mode_options(mode) if mode else {}
        return compile_fx(gm, example_inputs, config_patches={**settings, **rest}, **keywords)
    return lookup_backend(inner)(gm, example_inputs, **keywords, **({"options": rest} if rest else {}))


_compile.__name__ = "fxscope"


def __getattr__(name: str) -> Any:
    if name != "fxscope":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fxscope.capture.api import ensure_recording

    ensure_recording()
    return _compile
