"""Keys at 100,000 nodes, and at 50,000 guards with 10,000 recompiles: how long the longest piece of work on the UI thread takes, per key, in CPU time of that thread.

CPU time, because it is the same on a busy machine; what other threads do while they hold the interpreter's lock is measured by
test_app_speed.py.
"""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial
from pathlib import Path
from typing import TextIO

import pytest
from fxscope_tui.app import FxscopeApp
from fxscope_tui.store import Store

pytestmark = pytest.mark.bench

NODES = 100_000
PER_MODULE = 100
GUARDS, RECOMPILES = 50_000, 10_000
BOUND = 0.05  # seconds
# view, cursor, modules, ops, inputs and users, the whole table copied, comparison, stage
KEYS = ["2", "j", "G", "g", "c", "c", "c", "b", "escape", "enter", "escape", "Y", "d", "enter", "n", "escape", "s"]

GUARD_KEYS = ["3", "j", "G", "g", "slash", "9", "enter", "b", "escape", "f", "5", "G", "enter"]


def graph_text(nodes: int, shift: int) -> str:
    modules = range(nodes // PER_MODULE)
    names = [f"L_self_modules_layers_modules_{number}_parameters_weight_" for number in modules]
    heads = ", ".join(f'{name}: "f32[16, 16][16, 1]cpu"' for name in names)
    lines = ["class GraphModule(torch.nn.Module):", f'    def forward(self, L_x_: "f32[8, 16][16, 1]cpu", {heads}):']
    lines += [f"        {name.lower()} = {name}" for name in names]
    before = "L_x_"
    for number in range(nodes):
        if number % 5 == 0:
            lines.append(f"         # File: /home/me/model.py:{number % 300 + 1} in forward, code: x = layer(x)")
        call = ("torch.relu({p})", "{p} + 1.0", "torch.nn.functional.gelu({p})")[
            (number + shift * (number % 1000 == 7)) % 3
        ]
        if number % PER_MODULE == 0:
            call = f"torch._C._nn.linear({{p}}, {names[number // PER_MODULE].lower()})"
        lines.append(f'        y_{number}: "f32[8, 16][16, 1]cpu" = {call.format(p=before)}')
        before = f"y_{number}"
    return "\n".join([*lines, f"        return ({before},)"])


def write_event(file: TextIO, envelope: dict[str, object], payload: str = "") -> None:
    file.write(f"V0101 00:00:00.000000 4242 torch/_dynamo/x.py:1] {json.dumps(envelope)}\n")
    file.writelines(f"\t{row}\n" for row in payload.splitlines())


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two compiles of one frame with a graph of 100,000 nodes each, in two stages."""
    folder = tmp_path_factory.mktemp("huge")
    with (folder / "dedicated_log_torch_trace_4242.log").open("w") as file:
        line = partial(write_event, file)
        line({"str": ["/home/me/model.py", 0]})
        for number in range(2):
            where = {"frame_id": 0, "frame_compile_id": number, "attempt": 0}
            stack = [{"line": 10, "name": "forward", "filename": 0}]
            text = graph_text(NODES, number)
            line({"dynamo_start": {"stack": stack}, **where, "stack": stack})
            line({"dynamo_output_graph": {"sizes": {}}, **where, "has_payload": "x"}, text)
            line({"aot_inference_graph": {}, **where, "has_payload": "x"}, text)
    return folder


@pytest.fixture
def longest(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """CPU seconds of every callback of the event loop."""
    run, taken = asyncio.Handle._run, []

    def timed(self: asyncio.Handle) -> None:
        start = time.thread_time()
        run(self)
        taken.append(time.thread_time() - start)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    return taken


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An entry with 50,000 guards, and 10,000 recompiles that blame it."""
    folder = tmp_path_factory.mktemp("guarded")
    with (folder / "dedicated_log_torch_trace_4242.log").open("w") as file:
        line = partial(write_event, file)
        line({"str": ["/home/me/model.py", 0]})
        stack = [{"line": 10, "name": "forward", "filename": 0}]
        tree = "TREE_GUARD_MANAGER:\n+- RootGuardManager\n" + "\n".join(
            f"| +- TENSOR_MATCH: check_tensor(L['self'].layers[{n}].weight, Parameter, torch.float32, size=[{n}, 16])"
            for n in range(GUARDS)
        )
        for number in range(RECOMPILES + 1):
            where = {"frame_id": 0, "frame_compile_id": number, "attempt": 0}
            line({"dynamo_start": {"stack": stack}, **where})
            if number:
                reason = f"0/0: tensor 'x' size mismatch at index 0. expected 4, actual {number}"
                line({"artifact": {"name": "recompile_reasons", "encoding": "json"}, **where, "has_payload": "x"},
                     json.dumps([reason]))  # fmt: skip
            else:
                line({"dynamo_cpp_guards_str": {}, **where, "has_payload": "x"}, tree)
    return folder


async def timed(app: FxscopeApp, keys: list[str], rows: int, longest: list[float]) -> list[tuple[str, float]]:
    """Each key, and the longest work of the UI thread until all that it started was done; the last view lists that many rows."""
    figures = []
    async with app.run_test(size=(120, 40)) as pilot:
        for key in ["", *keys]:
            longest.clear()
            if key:
                await pilot.press(key)
            for _ in range(3):
                await pilot.pause()
                await app.workers.wait_for_complete()
                await pilot.pause()
            if key:
                figures.append((key, max(longest)))
        assert app.view.table.count() >= rows
    return figures


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("made", "keys", "rows", "what"),
    [
        ("huge", KEYS, NODES, f"{NODES:,} nodes"),
        ("guarded", GUARD_KEYS, RECOMPILES, f"{GUARDS:,} guards and {RECOMPILES:,} recompiles"),
    ],
    ids=["nodes", "guards"],
)
async def test_no_key_holds_the_ui_thread(
    made: str, keys: list[str], rows: int, what: str, request: pytest.FixtureRequest, longest: list[float]
) -> None:
    figures = await timed(FxscopeApp(Store(request.getfixturevalue(made))), keys, rows, longest)
    print(f"\nthe longest work on the UI thread at {what}, ms: ", end="")
    print(", ".join(f"{key} {seconds * 1e3:.0f}" for key, seconds in figures))
    assert max(seconds for _, seconds in figures) < BOUND
