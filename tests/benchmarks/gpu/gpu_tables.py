"""Writes the tables of a page from the results of `bench_triton_gpu.py`.

    python tests/benchmarks/gpu/gpu_tables.py part0.json part1.json --page docs/performance_gpu.md

A table of the page stands between `<!-- table NAME -->` and `<!-- end -->`; what is between is replaced. Without `--page` all are printed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
PEERS = ("inductor", "tuned", "liger")  # what a generated kernel is held against; eager stands beside them
TITLES = {"inductor": "Inductor", "tuned": "Inductor tuned", "liger": "Liger"}


def gigabytes(value: Any) -> str:
    """A rate with thousands set apart; nothing where there is none."""
    return f"{value:,}" if value else ""


def share(value: float, whole: float) -> str:
    """A whole per cent."""
    return f"{100 * value / whole:.0f} %"


def best_peer(row: Row) -> tuple[str, int]:
    """The fastest of the peers, and its rate."""
    name = max(PEERS, key=lambda peer: row.get(peer) or 0)
    return name, row.get(name) or 0


def formulation(row: Row) -> str:
    """That of the row's first kernel."""
    return str(row["schedules"][0])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def large(rows: Sequence[Row]) -> str:
    """All rows but the small ones."""
    head = ("operation", "ours GB/s", "copy", "share", "Inductor", "tuned", "Liger", "eager", "gain", "best known", "error", "formulation")  # fmt: skip
    out = []
    for row in rows:
        if row["group"] == "small":
            continue
        gain = row["ours"] / best_peer(row)[1]
        out.append([
            row["case"], gigabytes(row["ours"]), gigabytes(row["ceiling"]), share(row["ours"], row["ceiling"]),
            *(gigabytes(row.get(peer)) for peer in (*PEERS, "eager")), f"{gain:.2f}x", gigabytes(row["page"]),
            f"{row['error']:.1e}", formulation(row),
        ])  # fmt: skip
    return markdown(head, out)


def small(rows: Sequence[Row]) -> str:
    """The small ones, in microseconds."""
    head = ("operation", "ours us", "ours GB/s", "copy us", "Inductor us", "tuned us", "Liger us", "eager us", "gain", "formulation")  # fmt: skip
    out = []
    for row in rows:
        if row["group"] != "small":
            continue
        x_bytes = 2 * _elements(row) * (4 if " fp32 " in row["case"] else 2)
        others = [row.get(f"{peer}_us") for peer in (*PEERS, "eager")]
        gain = min(us for us in others[:-1] if us) / row["ours_us"]
        out.append([
            row["case"], f"{row['ours_us']:.2f}", gigabytes(row["ours"]), f"{x_bytes / row['ceiling'] / 1e3:.2f}",
            *(f"{us:.2f}" if us else "" for us in others), f"{gain:.2f}x", formulation(row),
        ])  # fmt: skip
    return markdown(head, out)


def _elements(row: Row) -> int:
    rows, cols = re.findall(r"(\d+)x(\d+)", row["case"])[-1]
    return int(rows) * int(cols)


def behind(rows: Sequence[Row]) -> str:
    """Every row in which a peer or the best known formulation is ahead."""
    out = []
    for row in rows:
        name, rate = best_peer(row)
        ahead = [(TITLES[name], rate), ("best known", row["page"] or 0)]
        for who, other in ahead:
            if other > row["ours"]:
                out.append([row["case"], gigabytes(row["ours"]), f"{who} {gigabytes(other)}", f"{100 * (1 - row['ours'] / other):.1f} %"])  # fmt: skip
    return markdown(("operation", "ours", "ahead", "by"), out)


def ragged(rows: Sequence[Row]) -> str:
    """Rows of bfloat16 that start anywhere, with less than 1.3 times the best peer."""
    out = []
    for row in rows:
        cols = int(row["case"].rsplit("x", 1)[1])
        rate = best_peer(row)[1]
        if row["group"] == "small" or cols % 8 == 0 or " bf16 " not in row["case"] or row["ours"] >= 1.3 * rate:
            continue
        out.append([row["case"], share(row["ours"], row["ceiling"]), share(rate, row["ceiling"]), f"{row['ours'] / rate:.2f}x"])  # fmt: skip
    return markdown(("operation", "ours, of the copy", "best peer, of the copy", "gain"), out)


def below(rows: Sequence[Row]) -> str:
    """Large rows under 96 % of the copy."""
    out = [
        [row["case"], share(row["ours"], row["ceiling"]), f"{row['ours'] / best_peer(row)[1]:.2f}x"]
        for row in rows
        if row["group"] != "small" and row["ours"] < 0.96 * row["ceiling"]
    ]
    return markdown(("operation", "of the copy", "of the best peer"), out)


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "rows": large,
    "small": small,
    "behind": behind,
    "below": below,
    "ragged": ragged,
}


def rewritten(page: str, tables: dict[str, str]) -> str:
    """A page with its tables renewed.

    Raises:
        ValueError: The page lacks the place of a table.
    """
    for name, table in tables.items():
        place = re.compile(rf"(<!-- table {name} -->\n).*?(\n<!-- end -->)", re.DOTALL)
        if not place.search(page):
            raise ValueError(f"the page has no place for the table {name!r}: <!-- table {name} --> ... <!-- end -->")
        page = place.sub(lambda found, text=table: found[1] + text + found[2], page)  # type: ignore[misc]
    return page


def merged(results: Sequence[dict[str, Any]]) -> list[Row]:
    """The rows of several processes in the order of the cases."""
    rows = [row for result in results for row in result["rows"]]
    return sorted(rows, key=lambda row: row["at"])


def main() -> None:
    """Print the tables, or write them into the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    results = [json.loads(path.read_text()) for path in options.results]
    every = [row for result in results for row in result["rows"]]
    unfit = [row["case"] for row in every if row.get("failed") or row.get("wrong") or not best_peer(row)[1]]
    if unfit:
        raise SystemExit(f"failed, wrong or without a peer: {', '.join(unfit)}")
    rows = merged(results)
    tables = {name: write(rows) for name, write in TABLES.items()}
    if options.page:
        options.page.write_text(rewritten(options.page.read_text(), tables))
        return
    for name, table in tables.items():
        print(f"## {name}\n\n{table}\n")


if __name__ == "__main__":
    main()
