"""Cells of a notebook and lines of a prompt are no files; in their own process the text is there all the same."""

from __future__ import annotations

import linecache

import pytest

from fxscope.diagnosis.statement import _source, code_at, source_tree, statement_at

CELL = "def fn(x):\n    if x.sum() > 0:\n        x = x + 1\n    return x\n"


@pytest.mark.parametrize("name", ["/tmp/ipykernel_7/395.py", "<ipython-input-1-0a1b>", "<python-input-3>"])
def test_a_cell_is_read_from_its_process(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = CELL.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, name, (len(CELL), None, lines, name))
    _source.cache_clear()
    found = statement_at(name, 2, "if x.sum() > 0:")
    assert found is not None
    assert found.whole
    assert code_at(name, 4) == "return x"
    _source.cache_clear()
    monkeypatch.delitem(linecache.cache, name)
    assert source_tree(name) is None  # of another process, or long gone


def test_a_file_is_believed_before_what_was_read_of_it(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("new = 1\n")
    monkeypatch.setitem(linecache.cache, str(file), (4, 0.0, ["old = 1\n"], str(file)))
    monkeypatch.setitem(linecache.cache, "<lazy>", (lambda: "x",))  # of a loader; nothing is called
    assert code_at(str(file), 1) == "new = 1"
    assert source_tree("<lazy>") is None
