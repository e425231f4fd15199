"""What a log says is shown, and never obeyed: by terminals, browsers, JSON readers and file systems."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import fxscope
from fxscope.report.document import encode_document, report_document
from fxscope.report.eventlist import event_lines, event_rows
from fxscope.report.files import safe_name, write_artifacts
from fxscope.report.html import render_html
from fxscope.report.safe import escape_json, plain, plain_line
from fxscope.report.terminal import print_report
from tests.unit.report.hostile import write_hostile

BAD = {chr(code) for code in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x200B)}


@given(st.text())
def test_plain_leaves_no_control_characters(text: str) -> None:
    shown = plain(text)
    assert not BAD & set(shown)
    shown.encode()  # no lone surrogate is left either
    assert "\n" not in plain_line(text)


@given(st.text(st.characters(whitelist_categories=("L", "N", "P", "S", "Zs"))))
def test_plain_changes_nothing_else(text: str) -> None:
    with patch.dict("os.environ"):
        os.environ.pop("GITHUB_ACTIONS", None)
        assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::add-mask::e", r"\x3a:add-mask::e"),
        ("first\n  ::error file=a::b", "first\n  \\x3a:error file=a::b"),
        ("a ::stop-commands::x", r"a \x3a:stop-commands::x"),  # a narrow terminal breaks the line there
        ("##[group]x", r"\x23#[group]x"),
        ("aten::add, my::sort", "aten::add, my::sort"),
    ],
)
def test_a_program_gives_no_commands_to_github(text: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert plain(text) == text
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert plain(text) == shown


@given(st.dictionaries(st.text(), st.text() | st.integers()))
def test_escaped_json_means_the_same(value: dict[str, str | int]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert json.loads(escape_json(text)) == value
    assert not (BAD - {"\n"}) & set(escape_json(text))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_terminal(tmp_path: Path, width: int) -> None:
    out = io.StringIO()
    console = Console(
        file=out, width=width, markup=False, highlight=False, emoji=False, force_terminal=True, no_color=True
    )
    print_report(fxscope.open(write_hostile(tmp_path)), console, everything=True)
    page = out.getvalue()
    for style in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[1;2m"):  # what rich itself writes for bold and dim
        page = page.replace(style, "")
    assert not (BAD - {"\n"}) & set(page)
    assert "[bold red]" in page.replace("\n", "")
    assert "\\x1b[2J" in page


def test_events_and_json(tmp_path: Path) -> None:
    recording = fxscope.open(write_hostile(tmp_path))
    text = "\n".join(
        event_lines(row, payload=True) for row in event_rows(recording, kind=None, graph_id=None, payloads=True)
    )
    assert not (BAD - {"\n"}) & set(text)
    document = encode_document(report_document(recording))
    assert not (BAD - {"\n"}) & set(document)
    assert json.loads(document)["totals"]["graph_breaks"] == 1


class Page(HTMLParser):
    """Collects tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_html(tmp_path: Path) -> None:
    text = render_html(fxscope.open(write_hostile(tmp_path)))
    page = Page()
    page.feed(text)
    assert sum(tag == "script" for tag, _ in page.tags) == 1
    assert "alert(1)" in text
    assert "{{7*7}} ../../etc" in text  # no template evaluates it
    assert not re.search(r"\b49 \.\./\.\./etc", text)
    assert not (BAD - {"\n"}) & set(text)


def test_html_is_self_contained(shared: Path) -> None:
    text = render_html(fxscope.open(shared / "traces" / "h200" / "gpt2"))
    assert len(text.encode()) < 5_000_000
    page = Page()
    page.feed(text)
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object", "embed"), tag
        for name in ("src", "href"):
            assert (attributes.get(name) or "#").startswith("#")
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert {"breaks", "recompiles", "time", "compiles", "search"} <= ids
    assert sum("data-text" in attributes for _, attributes in page.tags) > 20
    assert sum(tag == "rect" for tag, _ in page.tags) > 50
    assert "class GraphModule(torch.nn.Module)" in text


@pytest.mark.slow
def test_search_in_a_browser(tmp_path: Path) -> None:
    """The page's own script finds a line, opens its graph, and hides what does not match; the browser runs nothing else."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    traces = Path(__file__).resolve().parents[2] / "data" / "traces"
    pages = {"good": traces / "reset.log.xz", "hostile": write_hostile(tmp_path)}
    found = {}
    for name, log in pages.items():
        page = tmp_path / f"{name}.html"
        page.write_text(render_html(fxscope.open(log)), encoding="utf-8")
        query = "x_.cos()" if name == "good" else "GraphModule"
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom"]
        done = subprocess.run(
            [*command, f"{page.as_uri()}#q={query}"], capture_output=True, text=True, timeout=200, check=False
        )
        found[name] = done.stdout
    # Six compiles, three recompiles, two findings and the tree of stacks: two of the compiles hold the line.
    assert "2 of 12" in found["good"]
    assert found["good"].count("<mark>") >= 2
    assert "alert(1)" in found["hostile"]
    assert found["hostile"].count("<script") == 1


def test_artifacts_stay_in_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out" / "deep"
    number, _ = write_artifacts(fxscope.open(write_hostile(tmp_path)), folder)
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(written) == number == 7
    assert all(path.is_relative_to(folder) for path in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hostile.log", "out"]


@given(st.text())
def test_safe_name_is_one_plain_name(text: str) -> None:
    name = safe_name(text)
    assert name == Path(name).name
    assert name not in ("", ".", "..")
    assert len(name) <= 100
