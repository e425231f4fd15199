"""Dynamo's configuration is per thread: settings that were in force in one thread and not in another."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fxscope.diagnosis.context import Context, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.program import dynamo_settings, files_of
from fxscope.diagnosis.statement import code_at
from fxscope.names import EVENT_CONFIG


def findings(context: Context) -> list[Finding]:
    """One finding where threads of one process compiled under different settings."""
    found: list[Finding] = []
    for threads in _values_by_thread(context).values():
        differing = _differences(threads)
        if differing:
            found.append(_placed(context, _finding(context, differing), differing))
    return found or _by_program(context)


def _placed(context: Context, finding: Finding, differing: dict[str, tuple[Any, Any]]) -> Finding:
    """The finding at the line that makes the setting, where the program's text can be read."""
    names = [name.removeprefix("torch._dynamo.config.") for name in differing]
    limited = bool(context.recording.limit_hits)
    names.sort(key=lambda name: not (limited and "limit" in name))  # the one whose absence most likely shows
    places = {
        place.text: place for file in files_of(context) for place in reversed(dynamo_settings(file, computed=True))
    }
    place = next((places[name] for name in names if name in places), None)
    if place is not None:
        finding.file, finding.line, finding.code = place.file, place.line, code_at(place.file, place.line)
    return finding


def _by_program(context: Context) -> list[Finding]:
    """Settings that the program's text makes, and that were not in force where a worker thread compiled."""
    for compile_ in context.recording.compiles:
        if not any(
            line.function in ("_bootstrap_inner", "_bootstrap") and line.file.endswith("threading.py")
            for line in compile_.stack
        ):
            continue
        config = context.dynamo_config(compile_)
        places = {place.text: place for file in files_of(context) for place in reversed(dynamo_settings(file))}
        differing = [place for name, place in places.items() if name in config and config[name] != place.value]
        if differing:
            # A limit that was hit, or else the first: the setting whose absence most likely shows.
            limited = bool(context.recording.limit_hits)
            lead = next((place for place in differing if limited and "limit" in place.text), differing[0])
            finding = _finding(context, {f"torch._dynamo.config.{lead.text}": (lead.value, config[lead.text])})
            finding.file, finding.line, finding.code = lead.file, lead.line, code_at(lead.file, lead.line)
            where = f"{compile_.id} {compile_.function}, compiled in a thread"
            finding.evidence.append(Evidence(kind="compile", text=where, compile_key=compile_.key))
            return [finding]
    return []


def _values_by_thread(context: Context) -> dict[int, dict[Any, dict[str, Any]]]:
    """Log (one per process) -> thread -> settings that differ from their defaults."""
    found: dict[int, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for artifact, value in context.payloads(EVENT_CONFIG):
        values = value.get("values")
        if isinstance(values, dict):
            threads = found[context.log_of(artifact)]
            threads.setdefault((str(value.get("thread")), bool(value.get("main"))), {}).update(values)
    return found


def _differences(threads: dict[Any, dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Dynamo settings of the main thread that another thread lacks: name -> (main's value, the other's)."""
    main = next((values for (_, is_main), values in threads.items() if is_main), None)
    others = [values for (_, is_main), values in threads.items() if not is_main]
    if main is None or not others:
        return {}
    differing = {}
    for name, value in main.items():
        if not name.startswith("torch._dynamo.config."):
            continue
        for values in others:
            if values.get(name, "its default") != value:
                differing[name] = (value, values.get(name, "its default"))
    return differing


def _finding(context: Context, differing: dict[str, tuple[Any, Any]]) -> Finding:
    names = ", ".join(name.removeprefix("torch._dynamo.config.") for name in differing)
    text = "; ".join(
        f"{name} is {value} in the main thread, {other} in another" for name, (value, other) in differing.items()
    )
    compile_ = next(iter(context.recording.compiles), None)
    file, line = user_place(compile_) if compile_ else ("", 0)
    return Finding(
        ids=["per-thread-config"],
        category="recompiles",
        severity="medium",
        title=f"{names}: set in the main thread, not in force in another",
        file=file,
        line=line,
        function=compile_.function if compile_ else "",
        cause=f"torch._dynamo.config belongs to a thread: {text}. What was compiled in the other thread ignored the setting.",
        fix="Set it in that thread as well, before its first call (of a ThreadPoolExecutor, in its initializer=):\n"
        + "\n".join(f"    {name} = {value!r}" for name, (value, _) in differing.items()),
        gain="the other thread compiles as the main one does",
        verify=context.diff_command(),
        evidence=[Evidence(kind="note", text=text)],
    )
