"""Options that mean the same in several verbs."""

from __future__ import annotations

import math
from typing import Any

import click


class Amount(click.FloatRange):
    """A number that is not below 0 (``above_zero``: nor 0 itself), and finite: with nan every comparison would be false."""

    def __init__(self, *, above_zero: bool = False) -> None:
        super().__init__(min=0, min_open=above_zero)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number, or click's own error with exit code 2."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


_GRAPH_HELP = "Compile id as fxscope report prints it, e.g. 0/1 or r1:0/0."

graph = click.option("--graph", "graph_id", metavar="ID", help=_GRAPH_HELP)
required_graph = click.option("--graph", "graph_id", metavar="ID", required=True, help=_GRAPH_HELP)
stage = click.option(
    "--stage",
    default="dynamo",
    show_default=True,
    metavar="STAGE",
    help="dynamo, pre_grad, joint, forward, backward, ...; NAME#1 is the second graph of its stage.",
)
