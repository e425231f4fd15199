"""Options that mean the same in several verbs."""

from __future__ import annotations

import click

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
