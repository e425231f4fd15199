"""Findings about cost: compiling that did not pay, tiny graphs, many small kernels, slow guards, DDP's splits.

Nothing here is found without a measurement or a count that stands in the log; what is modelled says so.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from fxscope.diagnosis.context import Context, short_seconds, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.guards import name_of
from fxscope.diagnosis.launch_bound import launch_bound, operations
from fxscope.diagnosis.statement import code_at
from fxscope.recording.guards import flat
from fxscope.recording.records import Compile
from fxscope.recording.userline import is_user_file
from fxscope.words import count

_SHORT_RUN_SECONDS = 3.0  # compile time below this is no reason to speak of amortisation
_MOSTLY = 0.25  # share of the run
_FEW_CALLS = 20  # calls of an entry in a run that is "short"
_TINY_NODES = 3  # graphs with at most this many operations do less than a call costs
_MANY_CALLS = 100
_MANY_GUARDS = 300  # fewer guards than this cost little; one latency sample of few guards is noise
_GUARD_MICROSECONDS = 100.0  # guard latency per call that a reader should know of, where no call was timed
_GUARD_SHARE = 0.1  # share of a timed call


def findings(context: Context) -> list[Finding]:
    """Amortisation, tiny graphs, launch-bound graphs, guard cost and DDP splits."""
    compiles = [compile_ for compile_ in context.recording.compiles if compile_.status == "ok"]
    return [
        *_amortisation(context, compiles),
        *_tiny(context, compiles),
        *launch_bound(context, compiles),
        *_guards(context, compiles),
        *_ddp(context, compiles),
    ]


def _evidence(compiles: list[Compile], text: str = "") -> list[Evidence]:
    return [
        Evidence(kind="compile", text=text or f"{each.id} {each.function}", compile_key=each.key)
        for each in compiles[:20]
    ]


def _amortisation(context: Context, compiles: list[Compile]) -> list[Finding]:
    """Few calls behind a long compile: named where calls were counted; what a call saves needs ``--measure``."""
    seconds = context.recording.totals.compile_seconds
    counted = [compile_ for compile_ in compiles if compile_.calls is not None]
    if seconds < _SHORT_RUN_SECONDS or not counted:
        return []
    most = max(compile_.calls or 0 for compile_ in counted)
    wall = context.recording.session.ended - context.recording.session.started
    # Only a backend that generates code costs real time; "eager" and "aot_eager" are for debugging, where nothing is saved.
    generated = any("inductor" in name for compile_ in counted for name in compile_.phases) or any(
        stage.endswith(".code") for compile_ in counted for stage in compile_.stages
    )
    if most > _FEW_CALLS or not generated or seconds < _MOSTLY * wall:
        return []
    share = f", {100 * seconds / wall:.0f} % of the run" if wall > seconds > 0 else ""
    slowest = max(compiles, key=lambda compile_: compile_.seconds or 0.0)
    file, line = user_place(slowest)
    hits = sum(1 for compile_ in compiles if "hit" in compile_.caches.values())
    warm = (
        f" {count(hits, 'graph')} came from the cache."
        if hits
        else " The caches were cold; a second run of the same program compiles faster."
    )
    return [
        Finding(
            ids=["not-amortised"],
            category="cost",
            severity="info",  # a fact of short runs; whether it would ever pay, only --measure can tell
            title=f"{short_seconds(seconds)} of compiling for at most {count(most, 'call')} of a compiled graph",
            file=file,
            line=line,
            function=slowest.function,
            code=code_at(file, line),
            cause=f"Compiling took {short_seconds(seconds)}{share}, and no compiled graph was called more than {count(most, 'time')}, so little could be saved.{warm}",
            fix=(
                "For short jobs leave torch.compile out, or compile less (only the repeated block), keep the caches between runs "
                "(TORCHINDUCTOR_CACHE_DIR, torch.compiler.save_cache_artifacts), or avoid further graphs (see the other findings)."
            ),
            gain=f"up to {short_seconds(seconds)} per run",
            verify=context.measure_command(),
            evidence=_evidence(sorted(compiles, key=lambda compile_: -(compile_.seconds or 0.0))[:5]),
            cost=seconds,
        )
    ]


def _tiny(context: Context, compiles: list[Compile]) -> list[Finding]:
    tiny = [
        each
        for each in compiles
        if each.nodes is not None
        and operations(each) <= _TINY_NODES
        and (each.calls or 0) >= _MANY_CALLS
        and not _heavy(context, each)
    ]
    if not tiny or len(tiny) < len(compiles):
        return []
    file, line = user_place(tiny[0])
    calls = sum(each.calls or 0 for each in tiny)
    return [
        Finding(
            ids=["tiny-work"],
            category="cost",
            severity="low" if calls >= 10 * _MANY_CALLS else "info",
            title=f"{count(calls, 'call')} of graphs with at most {_TINY_NODES} operations",
            file=file,
            line=line,
            function=tiny[0].function,
            code=code_at(file, line),
            cause="Every compiled graph holds almost nothing, so checking its guards and calling it costs about what it saves.",
            fix="Compile a larger function: the whole model or training step instead of single small functions.",
            gain="the call overhead (modelled: some 10 to 50 microseconds per call)",
            verify=context.diff_command(),
            evidence=_evidence(tiny),
            cost=float(calls),
        )
    ]


_HEAVY = re.compile(r"linear|matmul|\bmm\b|bmm|conv|einsum|attention|addmm|embedding|lstm|gru|fft|linalg| @ ")


def _heavy(context: Context, compile_: Compile) -> bool:
    """One of the operations does real work by itself."""
    return any(
        bool(_HEAVY.search(context.recording.text(text.event))) for text in compile_.graphs if text.stage == "dynamo"
    )


def _guards(context: Context, compiles: list[Compile]) -> list[Finding]:
    slow = [(each, float(each.metrics.get("guard_latency_us") or 0.0)) for each in compiles]
    slow = [
        (each, latency)
        for each, latency in slow
        if (each.guards or 0) >= _MANY_GUARDS
        and (latency >= _GUARD_SHARE * 1e6 * each.call_seconds if each.call_seconds else latency >= _GUARD_MICROSECONDS)
    ]
    if not slow:
        return []
    compile_, latency = max(slow, key=lambda pair: pair[1] * (pair[0].calls or 1))
    file, line = user_place(compile_)
    parts: dict[str, int] = defaultdict(int)
    for guard in flat(context.recording.guards(compile_)):
        if guard.type:
            parts[_owner(guard.source)] += 1
    top = ", ".join(
        f"{number} under {name or 'the frame'}" for name, number in sorted(parts.items(), key=lambda item: -item[1])[:3]
    )
    share = ""
    if compile_.call_seconds:
        share = f", {100 * latency / (1e6 * compile_.call_seconds):.0f} % of a call"
    return [
        Finding(
            ids=["guard-cost"],
            category="cost",
            severity="low"
            if share
            else "info",  # one latency sample alone is no fault: it grows with the load of the machine
            title=f"{compile_.guards or 0} guards take {_short(latency)} before every call of {compile_.function}{share}",
            file=file,
            line=line,
            function=compile_.function if is_user_file(compile_.file) else "",
            code=code_at(file, line),
            cause=f"Guards are checked one by one before each call (measured by Dynamo when the entry was made): {top}.",
            fix=(
                'torch.compile(model, options={"guard_filter_fn": torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe}) drops guards on module internals '
                "that never change; pass fewer Python objects; or torch.compiler.set_stance(skip_guard_eval_unsafe=True) once everything is warm."
            ),
            gain=f"up to {_short(latency)} per call (measured once)",
            evidence=_evidence([compile_]),
            cost=latency * 1e-6 * (compile_.calls or 1),
        )
    ]


def _owner(source: str) -> str:
    """What a guard looks at, as a user would write it, cut to three parts: ``self.model.layers``; globals are one."""
    if source.startswith("G"):
        return "globals"
    local = name_of(source[max(0, source.find("L[")) :])  # what Dynamo asks of it (its type, its dict) stands in front
    return ".".join(re.findall(r"\w+", re.sub(r"\[\d+\]", "", local))[:3])


def _short(microseconds: float) -> str:
    return f"{microseconds / 1e3:.1f} ms" if microseconds >= 1e3 else f"{microseconds:.0f} us"


def _ddp(context: Context, compiles: list[Compile]) -> list[Finding]:
    pieces: Counter[str] = Counter()
    for artifact in context.recording.artifacts:
        if artifact.name.startswith("optimize_ddp_split_child") and artifact.compile_key:
            pieces[artifact.compile_key] += 1
    by_place: dict[tuple[str, int], list[Compile]] = defaultdict(list)
    for compile_ in compiles:
        if pieces[compile_.key] > 1:
            by_place[user_place(compile_)].append(compile_)
    found = []
    for (file, line), members in by_place.items():
        compile_, children = members[0], pieces[members[0].key]
        found.append(
            Finding(
                ids=["ddp-split"],
                category="cost",
                severity="info",
                title=f"DDPOptimizer cut {compile_.function} into {children} graphs",
                file=file,
                line=line,
                function=compile_.function,
                code=code_at(file, line),
                cause=f"DistributedDataParallel reduces gradients in buckets; the graph is split at their borders into {children} pieces so that communication overlaps with backward.",
                fix="Meant so. With a fast network or few parameters: a larger bucket_cap_mb in DistributedDataParallel gives fewer pieces; torch._dynamo.config.optimize_ddp = False one graph without overlap.",
                gain="fusion across the cuts, against overlap of communication: measure both",
                verify=context.try_command("config:optimize_ddp=False"),
                evidence=_evidence(members),
                cost=float(children),
                change="config:optimize_ddp=False",
            )
        )
    return found
