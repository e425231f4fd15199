"""A graph as a JSON document: the records, with every argument spelled out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from fxscope.graph.arguments import to_json
from fxscope.graph.records import Graph, Node


def graph_json(graph: Graph) -> Iterator[str]:
    """A graph as JSON text, a node a line, in pieces: as one tree of Python values a large one would take a gigabyte.

    See ``arguments.to_json`` for arguments.
    """
    yield f'{{"name": {json.dumps(graph.name)}, "stage": {json.dumps(graph.stage)}, "nodes": ['
    for place, node in enumerate(graph.nodes):
        yield (",\n" if place else "\n") + json.dumps(_node(node))
    yield '], "subgraphs": {'
    for place, (name, nested) in enumerate(graph.subgraphs.items()):
        yield (",\n" if place else "\n") + json.dumps(name) + ": "
        yield from graph_json(nested)
    yield f'}}, "problems": {json.dumps(graph.problems)}, "text": {json.dumps(graph.text)}}}'


def _node(node: Node) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(node, args=(), kwargs={}))
    built["args"] = [to_json(arg) for arg in node.args]
    built["kwargs"] = {key: to_json(value) for key, value in node.kwargs.items()}
    return built


def graph_schema() -> dict[str, Any]:
    """JSON Schema of ``graph_json`` within an export document."""
    argument = {
        "description": 'null, boolean, number, string, {"ref": node}, {"symbolic": text}, or containers of these'
    }
    meta = {
        "type": "object",
        "required": ["dtype", "shape"],
        "properties": {
            "dtype": {"type": "string"},
            "shape": {"type": "array", "items": {"type": ["integer", "string"]}},
            "stride": {"type": ["array", "null"], "items": {"type": ["integer", "string"]}},
            "device": {"type": ["string", "null"]},
        },
    }
    node = {
        "type": "object",
        "required": ["name", "op", "target", "args", "kwargs", "users", "index"],
        "properties": {
            "name": {"type": "string"},
            "op": {"enum": ["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"]},
            "target": {"type": "string"},
            "args": {"type": "array", "items": argument},
            "kwargs": {"type": "object", "additionalProperties": argument},
            "users": {"type": "array", "items": {"type": "string"}},
            "meta": {
                "anyOf": [{"type": "null"}, meta, {"type": "array", "items": {"anyOf": [{"type": "null"}, meta]}}]
            },
            "source": {"type": ["object", "null"]},
            "module": {"type": ["string", "null"]},
            "role": {"type": ["string", "null"]},
            "original": {"type": ["string", "null"]},
            "symbol": {"type": ["string", "null"]},
            "description": {"type": "string"},
            "subgraphs": {"type": "array", "items": {"type": "string"}},
            "index": {"type": "integer"},
        },
    }
    graph = {
        "type": "object",
        "required": ["name", "stage", "nodes", "subgraphs", "problems"],
        "properties": {
            "name": {"type": "string"},
            "stage": {"type": "string"},
            "nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            "subgraphs": {"type": "object", "additionalProperties": {"$ref": "#/$defs/graph"}},
            "problems": {"type": "array", "items": {"type": "string"}},
            "text": {"type": "string"},
        },
    }
    return {
        "type": "object",
        "required": ["schema", "id", "stage", "graph"],
        "properties": {
            "schema": {"const": "fxscope.export/1"},
            "id": {"type": "string"},
            "stage": {"type": "string"},
            "graph": {"$ref": "#/$defs/graph"},
        },
        "$defs": {"node": node, "graph": graph},
    }
