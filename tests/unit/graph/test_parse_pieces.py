"""Long graphs, which are parsed in pieces: the same records as from the whole text."""

from __future__ import annotations

import pytest

from fxscope.graph import printed
from fxscope.graph.parse import parse_graph


def text_of(lines: list[str]) -> str:
    """A printed class whose forward has these lines."""
    return "\n".join(
        ["class GraphModule(torch.nn.Module):", "    def forward(self, x):", *lines, "        return (y99,)"]
    )


@pytest.mark.shared
def test_a_long_graph_is_read_in_pieces_and_is_the_same(
    log_graphs: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graphs of the shared logs, cut every seven lines: signatures over many lines, nested classes and comments included."""
    cut = 0
    for _, stage, text in log_graphs[:4]:
        whole = parse_graph(text, stage)
        with monkeypatch.context() as short:
            short.setattr(printed, "PIECE", 7)
            assert parse_graph(text, stage) == whole
            cut += bool(printed.cut_body(printed.isolate(text)[0])[1])
    assert cut or max(text.count("\n") for *_, text in log_graphs[:4]) < 60


def test_a_long_graph_that_is_no_python_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed, "PIECE", 5)
    lines = [f"        y{i} = torch.relu(x)" for i in range(100)]
    lines[60] = "        y60: ) = torch.relu(x)"
    graph = parse_graph(text_of(lines))
    assert len(graph.nodes) == 102
    assert len(graph.problems) == 1
    assert "line 63" in graph.problems[0]


@pytest.mark.parametrize("comment", ["# why", "    # why", "  # why"])
@pytest.mark.parametrize("at", [3, 20, 60, 99])
def test_a_comment_of_any_indent_does_not_end_a_long_graph(
    monkeypatch: pytest.MonkeyPatch, comment: str, at: int
) -> None:
    lines = [f"        y{i} = torch.relu(x)" for i in range(100)]
    lines.insert(at, comment)
    text = text_of(lines)
    whole = parse_graph(text)
    monkeypatch.setattr(printed, "PIECE", 5)
    assert parse_graph(text) == whole
    assert len(whole.nodes) == 102
