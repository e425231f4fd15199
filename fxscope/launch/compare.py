"""Executors side by side: are they right, and then how fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from fxscope.errors import FxscopeError, MissingError, described
from fxscope.launch.ceilings import ceilings
from fxscope.launch.correctness import Reference, check, reference
from fxscope.launch.executors import Executor, prepare
from fxscope.launch.timing import Timing, measure
from fxscope.launch.traffic import Traffic, predicted_seconds, traffic
from fxscope.passes.aten import to_aten
from fxscope.passes.buffers import unchanged_buffers
from fxscope.passes.cost import Machine
from fxscope.passes.module import clone
from fxscope.passes.partition_report import PartitionReport
from fxscope.targets.target import Listing, Target
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule

Progress = Callable[[str], None]
# Of torch, and of torch.nn.functional, which names the switch otherwise.
_DROPOUTS = frozenset(
    [f"{kind}dropout{ending}" for kind in ("", "alpha_", "feature_", "feature_alpha_") for ending in ("", "_")]
    + ["dropout1d", "dropout2d", "dropout3d"]
)


class Row(msgspec.Struct, kw_only=True):
    """One executor.

    Attributes:
        kind: ``measured``; ``modelled`` (the time comes from a cost model); ``interpreted`` (a simulator's own run time).
        status: ``ok``, ``wrong`` (beyond tolerance; it is not timed), ``failed`` or ``missing``.
        median_ms, p10_ms, p90_ms: Of one call; for a modelled row the model's figure in all three.
        runs: Samples.
        bytes: What the graph must move, fused (modelled): the same for all rows, so that GB/s compare.
        gbps: Effective rate: those bytes over the median.
        peak_share: That rate over the measured copy bandwidth; may pass 1 where data stays in a cache; null for other kinds.
        max_abs_err: Against the reference (``Comparison.reference``), over outputs and what is written into inputs and buffers.
        launches: Kernels, programs or eager ops of one call.
        speedup: Median of paired ratios against the first row; null for other kinds, whose times are not comparable.
        predicted_ms: What the traffic model expects of it on this machine; null for other kinds.
    """

    executor: str
    kind: Literal["measured", "modelled", "interpreted"]
    status: Literal["ok", "wrong", "failed", "missing"] = "ok"
    median_ms: float | None = None
    p10_ms: float | None = None
    p90_ms: float | None = None
    runs: int = 0
    bytes: int | None = None
    gbps: float | None = None
    peak_share: float | None = None
    max_abs_err: float | None = None
    max_rel_err: float | None = None
    launches: int | None = None
    speedup: float | None = None
    predicted_ms: float | None = None
    how: str = ""
    note: str = ""


class Comparison(msgspec.Struct, kw_only=True):
    """Rows, and what they are read against.

    Attributes:
        reference: What results were compared with: ``eager in float64``, or eager in the graph's own dtype and why.
        listings: Sources by executor.
        nodes: By executor, for a target, the lines of the nodes that its sources speak of, by name.
        partitions: What each target runs of the graph.
    """

    rows: list[Row]
    reference: str
    traffic: Traffic | None
    machine: Machine
    notes: list[str]
    listings: dict[str, list[Listing]]
    nodes: dict[str, dict[str, str]]
    partitions: dict[str, PartitionReport]


def compare(
    gm: GraphModule,
    inputs: Sequence[Any],
    executors: Sequence[str | Target] = ("eager", "inductor"),
    *,
    seconds: float = 1.0,
    rounds: int = 25,
    machine: Machine | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    progress: Progress | None = None,
) -> Comparison:
    """Run a graph under several executors: first check each against the reference, then time the ones that are right.

    Dropout is switched off, so that there is something to compare. Gradients are off.

    Args:
        gm: The graph; it is left as it is.
        inputs: In placeholder order, all on one device.
        executors: Names of targets, or targets; speed-ups are against the first.
        seconds: Time to spend on each.
        rounds: Samples of each at most.
        machine: Ceilings; measured where not given.
        cancelled: Asked between executors and samples.
        progress: Told in words what happens.
    """
    say = progress or (lambda text: None)
    device = next((item.device.type for item in inputs if hasattr(item, "device")), "cpu")
    gm = clone(gm)
    notes = without_dropout(gm)
    say(f"measuring the ceilings of {device}")
    machine = machine or ceilings(device)
    model = _traffic(gm, inputs, notes)
    say("reference: eager in float64")
    expected = reference(gm, inputs)
    rows: list[Row] = []
    ready: dict[str, Executor] = {}
    for item in executors:
        name = item if isinstance(item, str) else item.name
        if cancelled():
            break
        say(f"{name}: compiling and checking")
        row, executor = _check(item, gm, inputs, expected, machine)
        rows.append(row)
        if executor is not None:
            ready[name] = executor
            row.launches, row.note = executor.launches, executor.note
    timed = {name: item.call for name, item in ready.items() if _row(rows, name).status == "ok"}
    clocked = {name: call for name, call in timed.items() if ready[name].modelled is None}
    baseline = rows[0].executor if rows and rows[0].kind == "measured" and rows[0].executor in clocked else None
    given = [item.detach().clone() if hasattr(item, "detach") else item for item in inputs]  # a graph may write to them
    with unchanged_buffers(gm):
        found = measure(
            clocked,
            given,
            baseline=baseline,
            seconds=seconds,
            rounds=rounds,
            cancelled=cancelled,
            progress=lambda done, of: say(f"timing: round {done} of {of}"),
        )
    for row in rows:
        if row.executor in timed:
            _fill(row, ready[row.executor], found.get(row.executor), model, machine, baseline)
    if cancelled():
        notes.append("cancelled: rows show what was measured until then")
    return Comparison(
        rows=rows,
        reference=expected.text,
        traffic=model,
        machine=machine,
        notes=notes,
        listings={name: list(item.listings) for name, item in ready.items()},
        nodes={name: item.nodes for name, item in ready.items() if item.nodes},
        partitions={name: item.partition for name, item in ready.items() if item.partition is not None},
    )


def _row(rows: list[Row], name: str) -> Row:
    return next(row for row in rows if row.executor == name)


def _check(
    item: str | Target,
    gm: GraphModule,
    inputs: Sequence[Any],
    expected: Reference,
    machine: Machine,
) -> tuple[Row, Executor | None]:
    """Make one executor and run it against the reference, its outputs poisoned in between."""
    name = item if isinstance(item, str) else item.name
    try:
        executor = prepare(item, gm, inputs, machine=machine)
        found = check(executor.call, gm, inputs, expected)
    except MissingError as error:
        return Row(executor=name, kind="measured", status="missing", note=str(error)), None
    except Exception as error:  # noqa: BLE001 - whatever a compiled graph raises belongs into its row
        return Row(executor=name, kind="measured", status="failed", note=described(error)), None
    row = Row(
        executor=name,
        kind=executor.kind,
        status="ok" if found.within else "wrong",
        max_abs_err=found.max_abs,
        max_rel_err=found.max_rel,
    )
    if not found.within:
        row.note = found.text or f"relative error {found.max_rel:.1e}, allowed {found.tolerance:.0e}: not timed"
        executor.note = row.note
    return row, executor


def _traffic(gm: GraphModule, inputs: Sequence[Any], notes: list[str]) -> Traffic | None:
    try:
        return traffic(to_aten(gm, inputs, decompositions="inductor"))
    except FxscopeError as error:
        notes.append(f"no traffic model: {error}")
        return None


def _fill(
    row: Row, executor: Executor, timing: Timing | None, model: Traffic | None, machine: Machine, baseline: str | None
) -> None:
    if executor.modelled is not None:
        row.median_ms = row.p10_ms = row.p90_ms = executor.modelled * 1e3
        row.how = "cost model"
    elif timing is not None:
        row.median_ms, row.p10_ms, row.p90_ms = (item * 1e3 for item in (timing.median, timing.p10, timing.p90))
        row.runs, row.how = len(timing.samples), timing.how
        if baseline is not None and row.kind == "measured":
            row.speedup = timing.ratio
    if model is None:
        return
    unfused = executor.name == "eager"
    row.bytes = model.fused_bytes
    if row.kind == "measured":
        row.predicted_ms = 1e3 * predicted_seconds(
            model.unfused_bytes if unfused else model.fused_bytes,
            model.flops,
            model.unfused_launches if unfused else (executor.launches or model.fused_launches),
            machine,
        )
    if row.median_ms and row.kind != "interpreted":
        row.gbps = model.fused_bytes / row.median_ms / 1e6
    if row.gbps and row.kind == "measured":  # a modelled machine has a bandwidth of its own
        row.peak_share = row.gbps * 1e9 / machine.bandwidth


def without_dropout(gm: GraphModule) -> list[str]:
    """Switch dropout off in a graph, in place; one note where there was any."""
    import torch

    places = 0
    for node in gm.graph.nodes:
        if node.op != "call_function":
            continue
        name = getattr(node.target, "__name__", "")
        if name in _DROPOUTS:
            given = dict(zip(("input", "p"), node.args, strict=False)) | node.kwargs
            node.args = (given["input"], given.get("p", 0.5))
            node.kwargs = {
                "training" if getattr(node.target, "__module__", None) == "torch.nn.functional" else "train": False
            }
            places += 1
        elif node.target is torch.ops.aten.native_dropout.default:
            node.args = (*node.args[:2], False)
            places += 1
        elif "scaled_dot_product" in name and (node.kwargs.get("dropout_p") or (len(node.args) > 4 and node.args[4])):
            node.args = tuple(0.0 if at == 4 else item for at, item in enumerate(node.args))
            node.kwargs = {key: 0.0 if key == "dropout_p" else item for key, item in node.kwargs.items()}
            places += 1
    gm.recompile()
    return [f"dropout is switched off in {count(places, 'place')}, so that results can be compared"] if places else []
