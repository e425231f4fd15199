"""Parse printed graphs without holding up the screen.

``ast.parse`` keeps the interpreter's lock for the whole text: half a second on a graph of 50,000 nodes. Above a few
hundred kilobytes a graph is therefore parsed in a process of its own and comes back in small packets.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from fxscope.errors import UnreadableError

if TYPE_CHECKING:
    from fxscope.graph.records import Graph

IN_PROCESS = 200_000  # characters up to which parsing here is fast enough
PACKET = 400  # nodes


def parse(text: str, stage: str, name: str) -> Graph:
    """A parsed graph; call it on a worker."""
    from fxscope.graph.parse import parse_graph

    if len(text) <= IN_PROCESS:
        return parse_graph(text, stage=stage, name=name)
    return _parse_elsewhere(text, stage, name)


def _parse_elsewhere(text: str, stage: str, name: str) -> Graph:
    import msgspec

    from fxscope.graph.records import Graph, Node

    command = [sys.executable, "-m", "fxscope_tui.parsing", stage, name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    data = text.encode("utf-8", "surrogatepass")
    for start in range(0, len(data), 1 << 16):
        process.stdin.write(data[start : start + (1 << 16)])
    process.stdin.close()
    head = msgspec.msgpack.Decoder(Graph)
    packets = msgspec.msgpack.Decoder(list[Node])
    graph: Graph | None = None
    while len(size := process.stdout.read(4)) == 4:
        packet = process.stdout.read(int.from_bytes(size, "big"))
        if graph is None:
            graph = head.decode(packet)
        else:
            graph.nodes.extend(packets.decode(packet))
    errors = process.stderr.read().decode(errors="replace") if process.stderr else ""
    if process.wait() or graph is None:
        last = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
        raise UnreadableError(f"the graph {name} {stage} could not be parsed: {last}")
    return graph


def _serve(stage: str, name: str) -> None:
    """The other process: text in, packets out."""
    import msgspec

    from fxscope.graph.parse import parse_graph

    text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
    graph = parse_graph(text, stage=stage, name=name)
    nodes, graph.nodes = graph.nodes, []
    encode = msgspec.msgpack.Encoder().encode
    out = sys.stdout.buffer

    def send(packet: bytes) -> None:
        out.write(len(packet).to_bytes(4, "big"))
        out.write(packet)

    send(encode(graph))
    for start in range(0, len(nodes), PACKET):
        send(encode(nodes[start : start + PACKET]))
    out.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2])
