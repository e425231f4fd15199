"""Graphs whose launches cost more than their work, and CUDA graphs (the remedy) where they are asked for and skipped."""

from __future__ import annotations

import math
import re

from fxscope.diagnosis.context import Context, user_place
from fxscope.diagnosis.findings import Evidence, Finding
from fxscope.diagnosis.statement import code_at
from fxscope.names import EVENT_GRAPH
from fxscope.recording.records import Compile

_MANY_CALLS = 100
_MANY_OPERATIONS = 30
_SMALL_ELEMENTS = 16_384  # a tensor of this size is done before the next launch
_MANY_KERNELS = 20
_KERNEL_SECONDS = 2e-5  # time per kernel below which the device waits for launches
_SIZES = re.compile(r"\b(?:f|bf|i|u|b|c)\d+\[([\d, ]*)\]")
_IN_PLACE = re.compile(
    r"\bl_(\w+?)_\.(?!(?:requires_grad_|detach_|share_memory_)\()(\w*[a-z0-9]_)\(|\bsetitem\(l_(\w+?)_,|\bl_(\w+?)_\[[^\]]*\] = "
)  # all that ends in an underscore, but for what writes no value
_IS_WRITTEN = "is written in place"
_STATE = re.compile(r"_(?:parameters|buffers|modules)_")


def launch_bound(context: Context, compiles: list[Compile]) -> list[Finding]:
    """Graphs of many small kernels, and graphs for which CUDA graphs were asked for and not made.

    Args:
        context: The recording.
        compiles: Its compiles that ended ok.
    """
    wanted = _with_cuda_graphs(context)
    plain = [each for each in compiles if each.key not in wanted]
    timed = _many_kernels(context, plain)
    told = {evidence.compile_key for finding in timed for evidence in finding.evidence}
    return [
        *timed,
        *_small_work(context, [each for each in plain if each.key not in told]),
        *_skipped(context, compiles),
        *_written(context, [each for each in compiles if each.key in wanted]),
    ]


def operations(compile_: Compile) -> int:
    """Operations of a graph: its nodes without inputs and output."""
    count = compile_.metrics.get("graph_op_count")
    return int(count) if isinstance(count, int) else max(0, (compile_.nodes or 0) - 2)


def _with_cuda_graphs(context: Context) -> set[str]:
    """Keys of the compiles whose mode or options ask for CUDA graphs."""
    found = set()
    for artifact, value in context.payloads(EVENT_GRAPH):
        options = value.get("options")
        asked = isinstance(options, dict) and options.get("triton.cudagraphs") is True
        if artifact.compile_key and (asked or value.get("mode") in ("reduce-overhead", "max-autotune")):
            found.add(artifact.compile_key)
    return found


def _small_work(context: Context, compiles: list[Compile]) -> list[Finding]:
    """Many operations on small tensors, called often: launches (or calls) dominate. Modelled from counts and shapes."""
    for compile_ in compiles:
        graph = next((text for text in compile_.graphs if text.stage == "dynamo" and text.size < 2_000_000), None)
        if graph is None or (compile_.calls or 0) < _MANY_CALLS or operations(compile_) < _MANY_OPERATIONS:
            continue
        sizes = [
            math.prod(int(size) for size in match.split(",") if size.strip())
            for match in _SIZES.findall(context.recording.text(graph.event))
        ]
        if not sizes or max(sizes) > _SMALL_ELEMENTS:
            continue
        return [
            _finding(
                compile_,
                "info",
                f"{operations(compile_)} operations on tensors of at most {max(sizes)} elements, called {compile_.calls} times",
                "Each operation works on so little that starting it costs more than doing it (modelled from counts and shapes, not timed).",
                'Use a backend that fuses (the default, inductor), a larger batch, and on a GPU mode="reduce-overhead", which replays all kernels as one CUDA graph.',
                "the launch time (modelled: about 5 microseconds per kernel on a GPU)",
                context.try_command("mode:reduce-overhead"),
                cost=float(compile_.calls or 0),
            )
        ]
    return []


def _many_kernels(context: Context, compiles: list[Compile]) -> list[Finding]:
    """Many kernels in one graph whose call is short, on a GPU: counted from the generated code, timed where sampled."""
    found = []
    for compile_ in compiles:
        if not any(device.startswith("cuda") for device in _devices(context, compile_)):
            continue
        kernels = _kernels(context, compile_)
        seconds = compile_.call_seconds
        if kernels < _MANY_KERNELS or seconds is None or seconds > _KERNEL_SECONDS * kernels:
            continue
        reasons = predicted_skips(context, compile_)
        finding = _finding(
            compile_,
            "low",
            f"{kernels} kernels in {1e3 * seconds:.2f} ms: {1e6 * seconds / kernels:.0f} microseconds each",
            "The graph is a chain of kernels so short that launching them takes the time.",
            'torch.compile(..., mode="reduce-overhead") replays them as one CUDA graph.'
            + (f" Here it would be cut or skipped, as {'; '.join(reasons)}." if reasons else ""),
            "the launch time (modelled: about 5 microseconds per kernel)",
            context.try_command("mode:reduce-overhead"),
            cost=seconds * (compile_.calls or 1),
        )
        finding.change = "mode:reduce-overhead"
        found.append(finding)
    return found


def _skipped(context: Context, compiles: list[Compile]) -> list[Finding]:
    """CUDA graphs that Inductor gave up while compiling: its reason stands in the metrics of the compile."""
    by_reason: dict[str, list[Compile]] = {}
    for compile_ in compiles:
        reason = str(compile_.metrics.get("cudagraph_skip_reason") or "").strip()
        if reason:
            by_reason.setdefault(reason, []).append(compile_)
    found = []
    for reason, members in by_reason.items():
        head = reason.splitlines()[0].removeprefix("skipping cudagraphs due to ").strip()
        finding = _finding(
            members[0],
            "low",
            f"CUDA graphs are asked for and skipped: {head[:120]}",
            f"Inductor made no CUDA graph: {head}, so every kernel is launched by itself, as without the mode.",
            _mend(head),
            "the launch time that CUDA graphs save (modelled: about 5 microseconds per kernel)",
            context.check_command("--fail-on low"),
            cost=float(sum(each.calls or 1 for each in members)),
        )
        finding.ids = ["cudagraph-skipped", "launch-bound"]
        own = re.search(r'File "([^"]+)", line (\d+)(?![\s\S]*File ")', reason)
        if own is not None:
            finding.file, finding.line = own[1], int(own[2])
            finding.code = code_at(finding.file, finding.line)
        finding.evidence = _evidence(members, head[:120])
        found.append(finding)
    return found


def _written(context: Context, compiles: list[Compile]) -> list[Finding]:
    """Arguments written in place, for which Inductor decides call by call, and writes nothing of it into the log."""
    by_reason: dict[str, list[Compile]] = {}
    for compile_ in compiles:
        written = [each for each in predicted_skips(context, compile_) if each.endswith(_IS_WRITTEN)]
        if written and not compile_.metrics.get("cudagraph_skip_reason"):
            by_reason.setdefault(written[0], []).append(compile_)
    found = []
    for reason, members in by_reason.items():
        finding = _finding(
            members[0],
            "info",
            f"CUDA graphs are asked for, and {reason}",
            "A graph that writes into an argument is replayed only where that argument lies in memory of CUDA graphs or is marked static; else each call launches its "
            "kernels one by one (read from the graph: torch logs nothing of it).",
            _mend("mutated"),
            "the launch time that CUDA graphs save (modelled: about 5 microseconds per kernel)",
            context.check_command("--fail-on info"),
            cost=float(sum(each.calls or 1 for each in members)),
        )
        finding.ids = ["cudagraph-skipped"]
        finding.evidence = _evidence(members, reason)
        found.append(finding)
    return found


def _evidence(members: list[Compile], reason: str) -> list[Evidence]:
    return [
        Evidence(kind="compile", text=f"{each.id} {each.function}: {reason}", compile_key=each.key)
        for each in members[:20]
    ]


def _mend(reason: str) -> str:
    """What to do about a reason of ``torch/_inductor/cudagraph_utils.py`` and ``compile_fx.py``."""
    if "mutated" in reason:
        return (
            "An argument is written in place. Return the new value instead, register what is written as a buffer of the module, or "
            "torch._dynamo.mark_static_address(x) before the first call, where the same tensor comes in every call."
        )
    if "cpu" in reason.lower():
        return "A tensor of the graph lives on the CPU: make it on the device (device=x.device), or pass it in; also numbers that are 0-dim CPU tensors."
    if "symbolic" in reason or "dynamic shape" in reason:
        return "Keep sizes fixed: pad to a few sizes (each is a CUDA graph of its own), or torch.compile(..., dynamic=False)."
    if "multiple device" in reason:
        return "Keep one graph on one device: compile what runs on each device apart."
    return "Take the operation that the reason names out of the compiled function, or accept it: torch._inductor.config.triton.cudagraphs stays off for this graph alone."


def predicted_skips(context: Context, compile_: Compile) -> list[str]:
    """Reasons, from a graph and its generated code, for which CUDA graphs would be cut or skipped."""
    reasons = []
    for text in compile_.graphs:
        if text.stage.endswith(".code"):
            code = context.recording.text(text.event)
            if re.search(r"device='cpu'|empty_strided_cpu\(", code):
                reasons.append("some tensors live on the CPU")
            if re.search(r"\bs\d+ = (?:arg|primals)", code):
                reasons.append("sizes are dynamic (one CUDA graph per size)")
        elif text.stage == "dynamo":
            for found in _IN_PLACE.finditer(context.recording.text(text.event)):
                name = next((each for each in (found[1], found[3], found[4]) if each), "")
                if not _STATE.search(f"_{name}_"):
                    reasons.append(f"the argument {name} {_IS_WRITTEN}")
    return list(dict.fromkeys(reasons))


def _finding(
    compile_: Compile, severity: str, title: str, cause: str, fix: str, gain: str, verify: str, *, cost: float
) -> Finding:
    file, line = user_place(compile_)
    return Finding(
        ids=["launch-bound"],
        category="cost",
        severity="info" if severity == "info" else "low",
        title=title,
        file=file,
        line=line,
        function=compile_.function,
        code=code_at(file, line),
        cause=cause,
        fix=fix,
        gain=gain,
        verify=verify,
        evidence=[Evidence(kind="compile", text=f"{compile_.id} {compile_.function}", compile_key=compile_.key)],
        cost=cost,
    )


def _devices(context: Context, compile_: Compile) -> set[str]:
    devices = {str(item.get("device") or "") for item in compile_.inputs}
    return devices or set(context.recording.session.devices)


def _kernels(context: Context, compile_: Compile) -> int:
    total = 0
    for text in compile_.graphs:
        if text.stage.endswith(".code"):
            total += len(re.findall(r"\.run\(|extern_kernels\.\w+\(", context.recording.text(text.event)))
    return total
