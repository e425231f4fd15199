"""``fxscope bench``: one recorded graph under several executors, side by side."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from fxscope.cli import options
from fxscope.words import count

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.launch.compare import Comparison, Row


@click.command(epilog="\b\nExample:\n  fxscope bench run.fxscope --graph 0/0 --executors eager,inductor,triton")
@click.argument("path", type=click.Path())
@options.graph
@options.stage
@click.option("--executors", default="eager,inductor", show_default=True, metavar="A,B", help="Targets by name.")
@click.option("--pipeline", metavar="A,B,C", help="Apply these passes first, as fxscope passes does.")
@click.option("--inference", is_flag=True, help="Promise that no gradient is needed: parameters become attributes.")
@click.option("--island", type=int, metavar="N", help="Only island N of the last executor's target.")
@click.option("--device", default="cpu", show_default=True, metavar="cpu|cuda[:N]", help="Where it runs.")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads of PyTorch's CPU kernels.")
@click.option(
    "--seconds", type=options.Amount(), default=1.0, show_default=True, help="Time to spend on each executor."
)
@click.option("--sweep", "sizes", metavar="N,N,...", help="Also time these sizes of the data inputs' first axis.")
@click.option("--seed", default=0, show_default=True, help="Of the inputs.")
@click.option("--sources", is_flag=True, help="With --json: the sources of every executor.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (fxscope schema bench).")
def command(
    path: str,
    graph_id: str | None,
    stage: str,
    executors: str,
    pipeline: str | None,
    inference: bool,
    island: int | None,
    device: str,
    threads: int | None,
    seconds: float,
    sizes: str | None,
    seed: int,
    sources: bool,
    as_json: bool,
) -> None:
    """Run one graph under several executors: first correctness, then time.

    The graph is rebuilt from the log and run on inputs made from its descriptions. Rows say measured, modelled or interpreted;
    a speed-up is given among measured rows only. Exit code 1: an executor is wrong or failed; 4: one is missing here.
    """
    from fxscope.errors import UsageError

    names = [name.strip() for name in executors.split(",") if name.strip()]
    if not names:
        raise UsageError("--executors is empty; e.g. --executors eager,inductor")
    wanted = _sizes(sizes)
    from fxscope.targets.registry import target

    for name in names:
        target(name)  # a misspelt one costs nothing yet
    import torch

    _require_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    from fxscope.launch.compare import compare
    from fxscope.launch.document import bench_document
    from fxscope.passes.recorded import load

    found = load(path, graph_id, stage, device=device, seed=seed, bind=inference)
    say = _narrator()
    module, inputs = found.module, found.inputs
    if pipeline is not None:
        module = _after(module, inputs, pipeline, inference)
    if island is not None:
        from fxscope.launch.island import cut_island

        module, inputs = cut_island(module, inputs, target(names[-1]), island)
    result = compare(module, inputs, names, seconds=seconds, progress=say)
    swept = None
    if wanted:
        from fxscope.launch.sweep import scale_first_axis, sweep

        data = [
            at
            for at, node in enumerate(module.graph.find_nodes(op="placeholder"))
            if getattr(node.meta.get("fxscope"), "role", "input") in (None, "input")
        ]
        swept = sweep(scale_first_axis(module, inputs, data), wanted, names, result.machine, progress=say)
    say("")
    if as_json:
        from fxscope.report.document import encode_document

        document = bench_document(
            result, graph=found.id, stage=stage, device=device, notes=found.notes, sources=sources, sweep=swept
        )
        click.echo(encode_document(document))
    else:
        part = "" if island is None else f", island {island} of {names[-1]}"
        click.echo(f"graph {found.id}, stage {stage}{part}: {count(len(module.graph.nodes), 'node')}, {device}")
        _print(result, found.notes, swept)
    statuses = {row.status for row in result.rows}
    if statuses & {"wrong", "failed"}:
        sys.exit(1)
    if "missing" in statuses:
        sys.exit(4)


def _require_device(device: str) -> None:
    """Raises UsageError where the name is none, MissingError where this machine has no such device."""
    import re

    import torch

    from fxscope.errors import MissingError, UsageError

    named = re.fullmatch(r"cpu|cuda(?::(\d{1,3}))?", device)
    if named is None:
        raise UsageError(f"--device {device}: unknown; there are cpu, cuda and cuda:N")
    if device == "cpu":
        return
    if not torch.cuda.is_available():
        raise MissingError(f"--device {device}: this PyTorch sees no GPU (torch.cuda.is_available() is False)")
    if int(named[1] or 0) >= torch.cuda.device_count():
        raise MissingError(
            f"--device {device}: this PyTorch sees {count(torch.cuda.device_count(), 'GPU')}, from cuda:0"
        )


def _after(module: GraphModule, inputs: list[Any], pipeline: str, inference: bool) -> GraphModule:
    """The graph after passes; that they change no numbers is shown by ``fxscope passes``."""
    from fxscope.errors import CheckFailed
    from fxscope.passes.stepper import Stepper

    stepper = Stepper(module, pipeline, inputs, inference=inference, numbers=False)
    for step in stepper.run():
        if step.status == "failed":
            raise CheckFailed(f"--pipeline: {step.error}")
    return stepper.current


def _sizes(text: str | None) -> list[int]:
    from fxscope.errors import UsageError

    try:
        sizes = [int(part) for part in (text or "").split(",") if part.strip()]
    except ValueError as error:
        raise UsageError(f"--sweep takes numbers: --sweep 1,8,64,512, not {text}") from error
    if any(size < 1 for size in sizes):
        raise UsageError("--sweep takes sizes of at least 1")
    return sizes


def _narrator() -> Any:
    """Progress on standard error where that is a terminal: one line that is written over."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _print(result: Comparison, notes: list[str], swept: Any) -> None:
    from fxscope.report.safe import plain_line

    head = f"{'executor':<10} {'kind':<11} {'median':>10} {'p10-p90':>19} {'GB/s':>7} {'of peak':>7} {'max err':>8} {'launches':>8} {'x':>6}"
    click.echo(head)
    for row in result.rows:
        click.echo(_line(row))
    for row in result.rows:
        if row.note:
            click.echo(f"{row.executor}: {plain_line(row.note)}")
    model = result.traffic
    if model is not None:
        ratio = model.unfused_bytes / model.fused_bytes if model.fused_bytes else 1.0
        click.echo(
            f"traffic (modelled): op by op {_mb(model.unfused_bytes)} in {count(model.unfused_launches, 'launch', 'launches')}, fused "
            f"{_mb(model.fused_bytes)} in {model.fused_launches} ({ratio:.1f}x less), floor {_mb(model.floor_bytes)}; "
            f"{model.flops / 1e9:.3g} GFLOP, {model.intensity:.2g} FLOP/byte"
        )
        for row in result.rows:
            if row.predicted_ms and row.median_ms:
                click.echo(
                    f"  {row.executor}: the model expects {row.predicted_ms:.3g} ms, {row.kind} {row.median_ms:.3g} ms "
                    f"({row.median_ms / row.predicted_ms:.1f}x)"
                )
    machine = result.machine
    click.echo(
        f"ceilings ({machine.origin}): copy {machine.bandwidth / 1e9:.1f} GB/s, matrix product "
        f"{machine.flops / 1e9:.0f} GFLOP/s, launch {machine.launch * 1e6:.1f} µs"
    )
    click.echo(f"compared with: {result.reference}")
    how = dict.fromkeys(row.how for row in result.rows if row.how)
    for text in how:
        click.echo(f"timed by: {text}")
    for name, parts in result.partitions.items():
        for item in parts.what_if[:3]:
            click.echo(f"{name}: {plain_line(item.text)}")
    if swept is not None:
        from fxscope.launch.sweep import plot

        click.echo()
        click.echo(plot(swept))
        click.echo(swept.sentence)
        for note in swept.notes:
            click.echo(f"note: {plain_line(note)}", err=True)
    for note in [*notes, *result.notes]:
        click.echo(f"note: {plain_line(note)}", err=True)


def _line(row: Row) -> str:
    if row.median_ms is None:
        return f"{row.executor:<10} {row.kind:<11} {row.status}"
    spread = f"{row.p10_ms:.4g}-{row.p90_ms:.4g}" if row.runs else ""
    return (
        f"{row.executor:<10} {row.kind:<11} {row.median_ms:>7.4g} ms {spread:>19} "
        f"{'' if row.gbps is None else f'{row.gbps:.1f}':>7} "
        f"{'' if row.peak_share is None else f'{row.peak_share:.0%}':>7} "
        f"{'' if row.max_abs_err is None else f'{row.max_abs_err:.0e}':>8} "
        f"{'' if row.launches is None else row.launches:>8} "
        f"{'' if row.speedup is None else f'{row.speedup:.2f}':>6}"
    )


def _mb(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``--json``."""
    import msgspec

    from fxscope.launch.document import BenchDocument

    return msgspec.json.schema(BenchDocument)
