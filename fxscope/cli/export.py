"""``fxscope export``: a graph or the timeline as a file that other tools read."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from fxscope.cli import options

if TYPE_CHECKING:
    from fxscope.graph.records import Graph
    from fxscope.recording.recording import Recording
    from fxscope.recording.records import Compile

FORMATS = ("dot", "svg", "png", "json", "fx", "repro", "table", "perfetto")
_SLOW = 3000  # nodes from which graphviz needs minutes


@click.command(
    epilog="\b\nExamples:\n  fxscope export svg run.fxscope --graph 0/0 --collapse 2 -o graph.svg\n  fxscope export dot run.fxscope --graph 0/1 --against 0/0 --highlight diff"
)
@click.argument("form", metavar="FORMAT", type=click.Choice(FORMATS))
@click.argument("path", type=click.Path())
@options.graph
@options.stage
@click.option("--index", type=int, help="Which of several graphs of that stage, from 0; the same as NAME#INDEX.")
@click.option("-o", "output", metavar="FILE", type=click.Path(), help="Write here instead of to standard output.")
@click.option("--around", multiple=True, metavar="NODE", help="Draw only what is near this node; may be repeated.")
@click.option("--hops", type=click.IntRange(min=0), default=2, show_default=True, help="How near, in edges.")
@click.option(
    "--collapse", metavar="DEPTH|MODULE,...", help="Draw each module at this depth, or these modules, as one node."
)
@click.option("--highlight", type=click.Choice(["breaks", "diff", "islands"]), help="Mark nodes with coloured borders.")
@click.option("--against", metavar="ID", help="For --highlight diff: the graph to compare with, by compile id.")
@click.option("--against-path", metavar="PATH", help="For --highlight diff: take that graph from another recording.")
@click.option("--against-stage", metavar="STAGE", help="For --highlight diff: take that graph from another stage.")
@click.option(
    "--target", default="npu", show_default=True, help="For --highlight islands: the target to partition for."
)
@click.option("--sources", is_flag=True, help="Show the user's source line in each node.")
@click.option("--no-clusters", is_flag=True, help="Draw no boxes around modules.")
@click.option("--no-legend", is_flag=True, help="Draw no legend.")
def command(form: str, path: str, output: str | None, **options: Any) -> None:
    """Write a graph or the compile timeline.

    dot, svg and png draw it (svg and png need graphviz), json gives its records, fx the code as PyTorch printed it, repro a
    Python file that runs it alone, table a listing for the terminal; perfetto gives the timeline of all ranks.
    """
    from fxscope.recording.recording import open_recording

    _refuse_unheard(form, options)
    recording = open_recording(path)
    if form == "perfetto":
        from fxscope.report.perfetto import perfetto

        _write(perfetto(recording), output)
        return
    from fxscope.graph.load import choose_compile

    options["stage"], options["index"] = _stage(options["stage"], options["index"])
    compile_ = choose_compile(recording, options["graph_id"])
    if form == "fx":
        from fxscope.report.safe import plain

        text = recording.text(recording.graph(compile_, options["stage"], options["index"]).event).rstrip("\n") + "\n"
        _write([text if output else plain(text)], output)
    elif form in ("dot", "svg", "png"):
        dot = _drawing(recording, compile_, options)
        _write([dot], output) if form == "dot" else _render(dot, form, output)
    else:
        _write(_text(form, recording, compile_, options), output)


def _refuse_unheard(form: str, given: Mapping[str, Any]) -> None:
    """Raises UsageError at an option that this format, or this --highlight, would pass over in silence."""
    from fxscope.errors import UsageError

    context = click.get_current_context()
    drawing, choosing = form in ("dot", "svg", "png"), form != "perfetto"
    heard = dict.fromkeys(("graph_id", "stage", "index"), (choosing, "for one graph, and a timeline shows all"))
    heard |= dict.fromkeys(
        ("around", "hops", "collapse", "highlight", "sources", "no_clusters", "no_legend"),
        (drawing, "for dot, svg and png"),
    )
    for name in ("against", "against_path", "against_stage"):
        heard[name] = (drawing and given["highlight"] == "diff", "for --highlight diff")
    heard["target"] = (drawing and given["highlight"] == "islands", "for --highlight islands")
    for option in context.command.params:
        name = option.name or ""
        said = context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
        if said and name in heard and not heard[name][0]:
            raise UsageError(f"{option.opts[-1]} is {heard[name][1]}")


def _stage(stage: str, index: int | None) -> tuple[str, int]:
    """The one graph that ``--stage`` and ``--index`` name together."""
    from fxscope.errors import UsageError
    from fxscope.recording.lookup import parse_stage

    name, number = parse_stage(stage, index or 0)
    if index not in (None, number):
        raise UsageError(f"--stage {stage} and --index {index} name two graphs; leave one of them out")
    return name, number


def _graph(recording: Recording, compile_: Compile, options: Mapping[str, Any]) -> Graph:
    from fxscope.graph.load import load_graph

    graph = load_graph(recording, compile_, options["stage"], options["index"])
    for problem in graph.problems:
        from fxscope.report.safe import plain_line

        click.echo(f"fxscope: not parsed whole: {plain_line(problem)}", err=True)
    return graph


def _text(form: str, recording: Recording, compile_: Compile, options: Mapping[str, Any]) -> Iterable[str]:
    graph = _graph(recording, compile_, options)
    if form == "json":
        import json

        from fxscope.graph.document import graph_json

        head = f'{{"schema": "fxscope.export/1", "id": {json.dumps(compile_.key)}, "stage": {json.dumps(graph.stage)}, '
        return itertools.chain([head, '"graph": '], graph_json(graph), ["}\n"])
    if form == "table":
        from fxscope.graph.table import lines
        from fxscope.report.safe import plain_line

        return (f"{plain_line(line)}\n" for line in lines(graph))
    from fxscope.graph.load import recorded_symbols
    from fxscope.graph.recorded import tensor_file
    from fxscope.graph.repro import repro
    from fxscope.recording.lookup import stage_name

    title = f"Graph {compile_.key} ({compile_.function}), stage {stage_name(graph.stage, options['index'])}"
    kept = tensor_file(recording, compile_)
    tensors = None if kept is None else str(kept)
    return [repro(graph, title=title, symbols=recorded_symbols(recording, compile_), tensors=tensors)]


def _drawing(recording: Recording, compile_: Compile, options: Mapping[str, Any]) -> str:
    from fxscope.recording.lookup import stage_name
    from fxscope.report.dot import to_dot

    graph = _graph(recording, compile_, options)
    highlight: dict[str, str] = {}
    if options["highlight"] == "breaks":
        highlight = _breaks(recording, graph)
    elif options["highlight"] == "diff":
        highlight = _differences(recording, compile_, graph, options)
    elif options["highlight"] == "islands":
        graph, highlight = _islands(recording, compile_, graph, options["target"])
    if options["highlight"] and not highlight:
        click.echo(f"fxscope: nothing to highlight: the graph has no {options['highlight']}", err=True)
    return to_dot(
        graph,
        around=options["around"],
        hops=options["hops"],
        collapse=_collapse(options["collapse"]),
        highlight=highlight,
        sources=options["sources"],
        clusters=not options["no_clusters"],
        legend=not options["no_legend"],
        title=f"{compile_.key} {compile_.function} {stage_name(options['stage'], options['index'])}",
    )


def _collapse(text: str | None) -> int | set[str] | None:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    names = {name.strip() for name in text.split(",") if name.strip()}
    if not names:
        from fxscope.errors import UsageError

        raise UsageError("--collapse is empty, so nothing would be collapsed; name a depth or modules")
    return names


def _breaks(recording: Recording, graph: Graph) -> dict[str, str]:
    """Nodes that came from a line where a graph break happened."""
    sites = {(row.file, row.line): f"graph break: {row.kind}" for row in recording.graph_breaks}
    sites |= {(row.user_file, row.user_line): f"graph break: {row.kind}" for row in recording.graph_breaks}
    return {
        node.name: sites[node.source.file, node.source.line]
        for node in graph.nodes
        if node.source is not None and (node.source.file, node.source.line) in sites
    }


def _differences(recording: Recording, compile_: Compile, graph: Graph, options: Mapping[str, Any]) -> dict[str, str]:
    """What differs from another graph: of another compile, another stage or another recording."""
    from fxscope.errors import UsageError
    from fxscope.graph.diff import diff_graphs
    from fxscope.graph.load import load_graph
    from fxscope.recording.lookup import parse_stage
    from fxscope.recording.recording import open_recording

    if not (options["against"] or options["against_path"] or options["against_stage"]):
        raise UsageError(
            "--highlight diff needs another graph: --against ID, --against-stage STAGE or --against-path PATH"
        )
    other = open_recording(options["against_path"]) if options["against_path"] else recording
    partner = other.find(options["against"] or compile_.key)
    before = load_graph(other, partner, *parse_stage(options["against_stage"] or options["stage"], options["index"]))
    diff = diff_graphs(before, graph)
    click.echo(f"fxscope: {partner.key} → {compile_.key}: {diff.summary()}", err=True)
    marked = {change.b: "only its size differs" if change.sizes_only else "changed" for change in diff.changed}
    marked |= {change.b: "rewired" for change in diff.rewired if change.what == ["inputs"]}
    return marked | {node.name: "added" for node in diff.added}


def _islands(recording: Recording, compile_: Compile, graph: Graph, target: str) -> tuple[Graph, dict[str, str]]:
    """The graph in ATen operators, and what of it a target takes: the graph is rebuilt for that, so this needs torch."""
    from fxscope.graph.inputs import make_inputs
    from fxscope.graph.load import recorded_symbols
    from fxscope.graph.rebuild import rebuild
    from fxscope.passes.aten import to_aten
    from fxscope.passes.fx_records import records
    from fxscope.passes.partition import partition
    from fxscope.targets import registry

    symbols = recorded_symbols(recording, compile_)
    module = rebuild(graph, symbols=symbols)
    lowered = to_aten(module, make_inputs(graph, symbols=symbols))
    found = partition(lowered, registry.target(target).supports)
    names = {node.name: f"{target} island {island.index}" for island in found.islands for node in island.nodes}
    return records(lowered, graph.name), names


def _render(dot: str, form: str, output: str | None) -> None:
    """Have graphviz lay the drawing out."""
    import shutil
    import subprocess

    from fxscope.errors import FxscopeError, MissingError

    program = shutil.which("dot")
    if program is None:
        raise MissingError(
            f"{form} needs graphviz's `dot`: install it (apt-get install graphviz, brew install graphviz, or "
            "conda install graphviz), or use `fxscope export dot`"
        )
    nodes = dot.count("fillcolor=")
    if nodes > _SLOW:
        click.echo(f"fxscope: laying out {nodes} nodes may take minutes; --collapse and --around draw less", err=True)
    done = subprocess.run([program, f"-T{form}"], input=dot.encode(), capture_output=True, check=False)
    if done.returncode:
        raise FxscopeError(f"graphviz failed: {done.stderr.decode(errors='replace').strip()[:300]}")
    if output is None:
        sys.stdout.buffer.write(done.stdout)
        sys.stdout.buffer.flush()
    else:
        _to_file(output, [done.stdout])


def _write(parts: Iterable[str], output: str | None) -> None:
    if output is None:
        from fxscope.cli.report import write_text

        for part in parts:
            write_text(part)
    else:
        _to_file(output, (part.encode("utf-8", "backslashreplace") for part in parts))


def _to_file(output: str, parts: Iterable[bytes]) -> None:
    from fxscope.errors import UsageError

    try:
        with open(output, "wb") as file:
            file.writelines(parts)
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error


def json_schema() -> dict[str, Any]:
    """JSON Schema of ``export json``."""
    from fxscope.graph.document import graph_schema

    return graph_schema()
