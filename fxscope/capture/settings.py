"""Settings of torch._dynamo and torch._inductor: what differs from the defaults, and what ``--config`` forces."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import Any

from fxscope.capture.describe import plain, safe_repr
from fxscope.capture.facts import unavailable
from fxscope.capture.recorder import ACTIVE, Recorder
from fxscope.capture.tracelog import warn
from fxscope.names import EVENT_CONFIG

MODULES = ("torch._dynamo.config", "torch._inductor.config")


def write_settings(recorder: Recorder, _metadata: dict[str, Any], _payload: Any) -> None:
    """At the start of a compile: ``fxscope.config``, where this thread's settings are not those last written for it."""
    _write(recorder, None)


def write_last_settings(recorder: Recorder) -> None:
    """At the end: those of the main thread, where it compiled nothing itself and other threads did (settings are per thread)."""
    threads = recorder.settings
    if threads and threading.get_ident() not in threads and threading.current_thread() is threading.main_thread():
        _write(recorder, {})


def _write(recorder: Recorder, envelope: dict[str, Any] | None) -> None:
    signature = tuple(_overrides(name) for name in MODULES)
    thread = threading.get_ident()
    if recorder.settings.get(thread) == signature:
        return
    recorder.settings[thread] = signature
    values = {f"{name}.{key}": value for name in MODULES for key, value in changed_settings(name).items()}
    recorder.artifact(
        EVENT_CONFIG,
        {
            "thread": threading.get_native_id(),
            "main": threading.current_thread() is threading.main_thread(),
            "values": values,
        },
        envelope,
    )


def _overrides(name: str) -> tuple[tuple[str, str], ...]:
    """A cheap fingerprint of what a thread has set: asked at every compile, so no default is compared."""
    entries = getattr(sys.modules.get(name), "_config", None) or {}
    found = []
    for key, entry in entries.items():
        override = getattr(entry, "user_override", None)  # a ContextVar since 2.12, the bare value before
        value = override.get() if isinstance(override, ContextVar) else override
        if type(value) is not object:  # the sentinel of an unset entry is a bare object()
            found.append((key, safe_repr(value)))
    return tuple(found)


def changed_settings(name: str) -> dict[str, Any]:
    """Settings of one module that differ from their defaults, in this thread; empty where it is not loaded."""
    module = sys.modules.get(name)
    is_default = getattr(module, "_is_default", None)
    entries = getattr(module, "_config", None)
    if module is None:
        return {}
    if is_default is None or entries is None:
        unavailable("changed settings", f"{name}._config or ._is_default is missing")
        return {}
    changed = {}
    for key, entry in entries.items():
        if getattr(entry, "alias", None) is None and not is_default(key):
            value = getattr(module, key, None)
            if not _same(value, entry.default):  # torch sets some settings to what they are
                changed[key] = plain(value)
    return changed


def _same(value: Any, default: Any) -> bool:
    try:
        return bool(value == default)
    except Exception:  # noqa: BLE001 - an object of the program's that cannot be compared is no default
        return False


def force_settings(recorder: Recorder) -> dict[str, Any]:
    """Hooks by module name that force ``--config`` settings for every thread, as long as the recording goes on."""
    settings = recorder.options.config

    def force(module: ModuleType) -> None:
        if recorder not in ACTIVE:
            return  # the module was first imported after the recording ended
        entries = getattr(module, "_config", None)
        if entries is None:
            unavailable("--config", f"{module.__name__}._config is missing")
            return
        for name, value in settings.items():
            key = _key_in(module.__name__, name, entries)
            if key is not None:
                recorder.undo.append(_force(module, key, value))
            elif module.__name__ == MODULES[-1] and not _known_elsewhere(name):
                warn(f"--config {name}: neither torch._dynamo.config nor torch._inductor.config has it")

    return dict.fromkeys(MODULES, force)


def _force(module: Any, key: str, value: Any) -> Callable[[], None]:
    """Force one setting; the function that gives it back."""
    entry = module._config[key]
    if getattr(entry, "alias", None) is not None:
        module, key = module._get_alias_module_and_name(entry)
        entry = module._config[key]
    # Settings are per thread; what the environment forces is above them all, and that is what we are.
    before = entry.env_value_force
    entry.env_value_force = value
    return functools.partial(setattr, entry, "env_value_force", before)


def _key_in(module: str, name: str, entries: dict[str, Any]) -> str | None:
    """The setting's own name in one module, for ``name`` with or without that module before it."""
    short = module.split(".")[1]  # _dynamo
    for prefix in (f"{module}.", f"{short}.config.", f"{short[1:]}.config.", f"{short[1:]}."):
        if name.startswith(prefix):
            return name[len(prefix) :] if name[len(prefix) :] in entries else None
    return name if name in entries else None


def _known_elsewhere(name: str) -> bool:
    dynamo = sys.modules.get(MODULES[0])
    return dynamo is not None and _key_in(MODULES[0], name, dynamo._config) is not None
