"""What is read from the program's own text: calls that came to nothing, late hooks, modes, settings, generators."""

from __future__ import annotations

from pathlib import Path

import pytest

import fxscope
from fxscope.diagnosis.diagnose import diagnose
from fxscope.diagnosis.findings import Finding
from fxscope.diagnosis.program import create_graph_call, dynamo_settings, generator_compiled, late_hooks


def recorded_nothing(folder: Path, source: str, exit_code: int | None = 0, **session: object) -> list[Finding]:
    """Findings of a recording in which nothing was compiled, of a program with this text."""
    import json

    script = folder / "program.py"
    script.write_text(source)
    run = folder / "run.fxscope"
    run.mkdir()
    facts = {"argv": [str(script)], "cwd": str(folder), "exit_code": exit_code, **session}
    (run / "session.json").write_text(json.dumps(facts))
    return diagnose(fxscope.open(run))


@pytest.mark.parametrize(
    ("source", "line", "ids", "words"),
    [
        (
            "import torch\nmodel = f()\ntorch.compile(model)\nmodel(x)\n",
            3,
            ["nothing-compiled"],
            "model = torch.compile(model)",
        ),
        (
            "import torch\nclass M:\n    def load(self):\n        self = torch.compile(self, dynamic=True)\n",
            4,
            ["nothing-compiled"],
            "self.compile(dynamic=True)",
        ),
        (
            "import torch\ndef setup(net):\n    fast = torch.compile(net)\n    return net\n",
            3,
            ["nothing-compiled"],
            "net.compile()",
        ),
        (
            "import torch\nfrom torch.utils.flop_counter import FlopCounterMode\nfast = torch.compile(net)\nwith FlopCounterMode():\n    fast(x)\n",
            4,
            ["nothing-compiled", "dispatch-mode"],
            "Leave the mode",
        ),
        (
            "import torch\nclass Log(TorchDispatchMode):\n    pass\nfast = torch.compile(net)\nwith Log():\n    fast(x)\n",
            5,
            ["nothing-compiled", "dispatch-mode"],
            "Leave the mode",
        ),
        (
            "import torch\n@torch.compile\ndef rows(x):\n    for r in x:\n        yield r\nlist(rows(x))\n",
            3,
            ["nothing-compiled", "generator"],
            "consumes the generator",
        ),
        (
            "import torch\nfast = torch.compile(net)\nfor x in data:\n    loss = net(x).sum()\n",
            2,
            ["nothing-compiled"],
            "before:\n    loss = net(x).sum()\nafter:\n    loss = fast(x).sum()\nor compile in place",
        ),
        (
            "import torch\nfast = torch.compile(self.net)\ndef validate(m):\n    return m(x)\nvalidate(self.net)\n",
            2,
            ["nothing-compiled"],
            "validate(fast)",
        ),
        (
            "import torch\nfast = torch.compile(step)\nserve(fast)\nstep(x)\n",
            2,
            ["nothing-compiled"],
            "Call the compiled function itself",
        ),
        (
            'import torch\ntorch.compiler.set_stance("force_eager")\nfast = torch.compile(net)\nfast(x)\n',
            2,
            ["nothing-compiled"],
            'set_stance("default")',
        ),
        (
            'import torch\nfast = torch.compile(net)\nwith torch.compiler.set_stance("force_eager"):\n    fast(x)\n',
            3,
            ["nothing-compiled"],
            "ends with its block",
        ),
        (
            'import os\nos.environ["TORCH_COMPILE_DISABLE"] = "1"\nimport torch\nfast = torch.compile(net)\nfast(x)\n',
            2,
            ["nothing-compiled"],
            "no TORCH_COMPILE_DISABLE",
        ),
        (
            "import torch\nimport torch._dynamo\ntorch._dynamo.config.disable = True\nfast = torch.compile(net)\nfast(x)\n",
            3,
            ["nothing-compiled"],
            "config.disable = False",
        ),
        (
            "import torch\ndef step(x):\n    return x\ntorch.compile(backend='eager')(step)\nstep(x)\n",
            4,
            ["nothing-compiled"],
            "step = torch.compile(backend='eager')(step)",
        ),
        (
            "import torch\nclass Ops:\n    def act(x):\n        return x\nOps.fast = torch.compile(Ops.act)\nOps.act(x)\n",
            5,
            ["nothing-compiled"],
            "after:\n    Ops.fast(x)",
        ),
        (
            "import torch\nif flag:\n    net = torch.compile(net)\nnet(x)\n",
            3,
            ["nothing-compiled"],
            "in which the condition holds",
        ),
        (
            "import torch\nfor net in nets:\n    net = torch.compile(net)\nnets[0](x)\n",
            3,
            ["nothing-compiled"],
            "nets = [torch.compile(net) for net in nets]",
        ),
        (
            "import torch\nfor block in model.children():\n    block = torch.compile(block, dynamic=True)\nmodel(x)\n",
            3,
            ["nothing-compiled"],
            "after:\n    for block in model.children():\n        block.compile(dynamic=True)",
        ),
        (
            "import torch\nfor block in model.blocks:\n    block = torch.compile(block)\nmodel(x)\n",
            3,
            ["nothing-compiled"],
            "after:\n    for block in model.blocks:\n        block.compile()",
        ),
        (
            "import torch\ndef step(x):\n    return x\ntorch.compile(step)(x)\n",
            4,
            ["nothing-compiled"],
            "Call the compiled function itself",
        ),
        (
            "import torch\ndef setup():\n    global fast\n    fast = torch.compile(net)\nsetup()\nfast(x)\n",
            4,
            ["nothing-compiled"],
            "Call the compiled function itself",
        ),
        (
            "import torch\ntorch.compile(Net(), dynamic=True)\n",
            2,
            ["nothing-compiled"],
            "after:\n    compiled = torch.compile(Net(), dynamic=True)",
        ),
        (
            "import torch\ndef step(x):\n    return x\ndef setup():\n    fast = torch.compile(step)\n",
            5,
            ["nothing-compiled"],
            "Return what torch.compile returned",
        ),
        (
            "import torch\nfast = torch.compile(net)\nprint(net)\nopt = torch.optim.SGD(net, lr=1)\nserve(net)\nnet(x)\n",
            2,
            ["nothing-compiled"],
            "before:\n    net(x)\nafter:\n    fast(x)",
        ),
        (
            "import torch\nfast = torch.compile(net)\nprint(net)\ntorch.save(net, f)\n",
            2,
            ["nothing-compiled"],
            "Call the compiled function itself",
        ),
        (
            "import torch\nnet = torch.compile(net)\nnet._orig_mod(x)\n",
            2,
            ["nothing-compiled"],
            "Call net(...) itself",
        ),
        (
            "import torch\nfast = torch.compile(net)\n@torch.compiler.set_stance('force_eager')\ndef f(x):\n    return fast(x)\nf(x)\n",
            3,
            ["nothing-compiled"],
            "ends with its block",
        ),
        (
            "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n        yield x\nnet = torch.compile(Net())\nlist(net(x))\n",
            5,
            ["nothing-compiled", "generator"],
            "consumes the generator",
        ),
        (
            "import torch\nfast = torch.compile(net, disable=True)\nfast(x)\n",
            2,
            ["nothing-compiled"],
            "no disable=True",
        ),
        (
            "import torch\nfast = torch.compile(net)\nfast.eval()\nfast.encode(x)\n",
            2,
            ["nothing-compiled"],
            "net.encode = torch.compile(net.encode)",
        ),
        (
            "import torch\nfast = torch.compile(net)\nserve(fast)\nfast.encode(x)\n",
            2,
            ["nothing-compiled"],
            "Call the compiled function itself",
        ),
        ("import torch\nprint(1)\n", 0, ["nothing-compiled"], "Call what torch.compile returns"),
    ],
)
def test_nothing_compiled(tmp_path: Path, source: str, line: int, ids: list[str], words: str) -> None:
    (finding,) = recorded_nothing(tmp_path, source)
    assert finding.ids == ids
    assert finding.line == line
    assert finding.severity == "high"
    assert words in finding.fix


def test_hooks_between_two_calls_are_late(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch\nnet.register_forward_hook(early)\nfast = torch.compile(net)\nfast(x)\n"
        "net[0].register_forward_hook(late)\nfast(x)\nnet.register_forward_hook(after)\n"
    )
    assert [place.line for place in late_hooks(str(file))] == [5]


def test_a_hook_before_the_only_call_is_fine(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch\nfast = torch.compile(net)\nnet.register_forward_hook(h)\nfor x in data:\n    fast(x)\n"
    )
    assert late_hooks(str(file)) == []


def test_settings_are_read_as_constants_only(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch\ntorch._dynamo.config.recompile_limit = 64\ntorch._dynamo.config.suppress_errors = flag()\nx.config.y = 1\n"
    )
    assert [(place.text, place.value, place.line) for place in dynamo_settings(str(file))] == [
        ("recompile_limit", 64, 2)
    ]


def test_gradients_of_gradients(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("import torch\ng, = torch.autograd.grad(f(x), x, create_graph=True)\n")
    place = create_graph_call(str(file))
    assert place is not None
    assert place.line == 2
    file = tmp_path / "b.py"
    file.write_text("import torch\ng, = torch.autograd.grad(f(x), x, create_graph=False)\n")
    assert create_graph_call(str(file)) is None


def test_a_nested_generator_does_not_make_its_function_one(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text(
        "import torch\n@torch.compile\ndef f(x):\n    def rows():\n        yield x\n    return list(rows())\n"
    )
    assert generator_compiled(str(file)) is None


def test_a_program_that_does_not_parse_is_no_obstacle(tmp_path: Path) -> None:
    (finding,) = recorded_nothing(tmp_path, "def (:\n")
    assert finding.ids == ["nothing-compiled"]


def test_a_program_that_ended_early_is_not_blamed(tmp_path: Path) -> None:
    (finding,) = recorded_nothing(tmp_path, "import torch\nfast = torch.compile(net)\nfast(x)\n", exit_code=143)
    assert finding.title == "Nothing was compiled before the program ended with exit code 143"
    assert "reaches the first call" in finding.fix
    folder = tmp_path / "thrown"
    folder.mkdir()
    (finding,) = recorded_nothing(folder, "import torch\ntorch.compile(net)\nnet(x)\n", exit_code=1)
    assert "thrown away" in finding.cause  # that is so whatever ended it


def test_a_live_run_that_has_compiled_nothing_yet_is_not_blamed(tmp_path: Path) -> None:
    source = "import torch\nmodel = f()\ntorch.compile(model)\nmodel(x)\n"
    live = {"state": "live", "host": "another-machine", "pid": 1}
    (tmp_path / "live").mkdir()
    assert recorded_nothing(tmp_path / "live", source, None, **live) == []
    (tmp_path / "ended").mkdir()
    assert recorded_nothing(tmp_path / "ended", source) != []
