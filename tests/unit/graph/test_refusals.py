"""A recording from a stranger is data: what is not in the list is refused by name, and nothing runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
import torch

from fxscope.errors import MissingError, UsageError
from fxscope.graph.parse import parse_graph
from fxscope.graph.rebuild import rebuild, resolve
from fxscope.graph.records import Graph, Node, Ref, Symbolic
from fxscope.graph.repro import repro
from fxscope.graph.standins import GUARDS

HEAD = "class GraphModule(torch.nn.Module):\n    def forward(self, x):\n        "

LINES = {
    "torch.load": "y = torch.load('/tmp/x')",
    "torch.save": "y = torch.save(x, '/tmp/x')",
    "torch.hub.load": "y = torch.hub.load('a/b', 'c')",
    "torch.ops.load_library": "y = torch.ops.load_library('/tmp/x.so')",
    "torch.from_file": "y = torch.from_file('/etc/passwd', False, 10)",
    "torch.ops.aten.from_file.default": "y = torch.ops.aten.from_file.default('/etc/passwd', True, 10)",
    "torch.ops.aten.save.default": "y = torch.ops.aten.save.default(x, '/tmp/x')",
    "torch.ops.aten.load.default": "y = torch.ops.aten.load.default('/tmp/x')",
    "torch.ops.aten.add.__class__": "y = torch.ops.aten.add.__class__(x)",
    "torch.ops.aten.__class__": "y = torch.ops.aten.__class__('x')",
    "torch.ops.mylib.myop.default": "y = torch.ops.mylib.myop.default(x)",
    "torch.ops.inductor.resize_storage_bytes_.default": "y = torch.ops.inductor.resize_storage_bytes_.default(x, 0)",
    "torch.ops.aten.set_.source_Storage": "y = torch.ops.aten.set_.source_Storage(x, x)",
    "torch.ops.aten.max_pool2d_with_indices_backward.grad_input": (
        "y = torch.ops.aten.max_pool2d_with_indices_backward.grad_input(x, x, [1], [1], [0], [1], False, x, grad_input = x)"
    ),
    "torch.ops.higher_order.triton_kernel_wrapper_mutation": "y = torch.ops.higher_order.triton_kernel_wrapper_mutation(x)",
    "torch.utils.cpp_extension.load": "y = torch.utils.cpp_extension.load('x', ['/tmp/x.cpp'])",
    "torch.package.PackageImporter": "y = torch.package.PackageImporter('/tmp/x')",
    "torch.jit.load": "y = torch.jit.load('/tmp/x')",
    "torch.serialization.load": "y = torch.serialization.load('/tmp/x')",
    "torch._C._jit_set_profiling_mode": "y = torch._C._jit_set_profiling_mode(True)",
    "torch.compile": "y = torch.compile(x)",
    "torch.multiprocessing.spawn": "y = torch.multiprocessing.spawn(x)",
    "torch.nn.Linear": "y = torch.nn.Linear(3, 4)",
    "torch.Tensor properties.shape": "y = getattr(torch, 'Tensor properties').shape(x)",
    "os.system": "y = os.system('true')",
    "os_system": "y = os_system('true')",
    "subprocess_run": "y = subprocess_run('true')",
    "eval": "y = eval('1')",
    "exec": "y = exec('1')",
    "__import__": "y = __import__('os')",
    "open": "y = open('/tmp/x')",
    "builtins_eval": "y = builtins_eval('1')",
    "operator.attrgetter": "y = operator.attrgetter('__class__')",
    "operator.methodcaller": "y = operator.methodcaller('numpy')",
    "operator_attrgetter": "y = operator_attrgetter('__class__')",
    "my_function": "y = my_function(x)",
    "the method .numpy()": "y = x.numpy()",
    "the method .apply_()": "y = x.apply_(1)",
    "the method .__reduce__()": "y = x.__reduce__()",
    "the method .__class__()": "y = x.__class__()",
    "the method .register_hook()": "y = x.register_hook(1)",
    "the method .untyped_storage()": "y = x.untyped_storage()",
    "the method .set_()": "y = x.set_(x)",
    "the method .share_memory_()": "y = x.share_memory_()",
    "the method .data_ptr()": "y = x.data_ptr()",
    "the method .type()": "y = x.type('torch.FloatTensor')",
    "the method .odd name()": 'y = getattr(x, "odd name")()',
    "the attribute .__class__": "y = x.__class__",
    "the attribute .__dict__": "y = getattr(x, '__dict__')",
    "the attribute .grad_fn": "y = x.grad_fn",
    "getattr with a computed name": "y = getattr(x, x)",
    "the value torch.load": "y = torch.add(x, torch.load)",
    "the value torch._dynamo": "y = torch.add(x, torch._dynamo)",
    "torch.ops.aten.from_file.default ": "y = torch.ops.higher_order.out_dtype(torch.ops.aten.from_file.default, x)",
    "the value os.system": "y = torch.add(x, os.system)",
    "the value __import__('os')": "y = torch.add(x, __import__('os'))",
    "the value [i for i in (1, 2)]": "y = torch.add(x, [i for i in (1, 2)])",
    "the value lambda: 1": "y = torch.add(x, lambda: 1)",
    "the name '__class__'": "y = self.__class__.b",
    "the attribute self.forward": "y = self.forward",
    "the attribute self.graph.x": "y = self.graph.x",
    "the name 'a=1, b'": 'y = torch.add(x, **{"a=1, b": 2})',
}


@pytest.mark.parametrize("make", [rebuild, repro])
@pytest.mark.parametrize("name", LINES)
def test_what_is_not_in_the_list_is_refused_by_name(name: str, make: Callable[[Graph], object]) -> None:
    graph = parse_graph(HEAD + LINES[name] + "\n        return (y,)\n")
    assert graph.problems == []
    with pytest.raises(UsageError) as error:
        make(graph)
    said = str(error.value).replace("lambda :", "lambda:")  # as Python 3.10 writes it
    if "self." not in name or make is rebuild:
        assert name.strip() in said or "does not describe the constant" in said


@pytest.mark.parametrize(
    "node",
    [
        Node(name="y", op="get_attr", target='a", __import__("os").system("true"), "b'),
        Node(name="y", op="call_function", target="torch.relu", args=(Ref("x"),), kwargs={"a=print(1),b": 1}),
        Node(name="y", op="call_method", target="view(1) or print", args=(Ref("x"),)),
        Node(name="y", op="call_function", target="torch.relu or print", args=(Ref("x"),)),
        Node(name="y", op="call_module", target="a.b();print", args=(Ref("x"),)),
        Node(name="y", op="call_function", target="torch.add", args=(Ref("x"), Symbolic("().__class__"))),
        Node(name="y", op="call_function", target="torch.add", args=(Ref("x"), Symbolic("9**9**9**9"))),
        Node(name="y", op="call_function", target="torch.add", args=(Ref("nowhere"), 1)),
    ],
)
def test_records_made_to_break_out_of_the_generated_code(node: Node) -> None:
    nodes = [
        Node(name="x", op="placeholder", target="x"),
        node,
        Node(name="output", op="output", target="output", args=(None,)),
    ]
    graph = Graph(name="G", nodes=nodes)
    with pytest.raises(UsageError):
        rebuild(graph)


@pytest.mark.parametrize("make", [lambda graph: rebuild(graph), lambda graph: compile(repro(graph), "repro", "exec")])
def test_odd_names_of_graphs_nodes_and_lines_stay_harmless(make: Callable[[Graph], object], tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    code = f"open({str(trap)!r}, 'w')"
    graph = parse_graph(
        f"class A{code}(torch.nn.Module):\n    def forward(self, x: 'f32[2]'):\n"
        f"        # File: a\x0c{code}.py:1 in f\r{code}, code: \x85{code}\u2028{code}\n"
        f'        y: "f32[2]" = torch.ops.aten.add.Tensor(x, 1)\n        return (y, {code!r})\n'
    )
    made = make(graph)
    if isinstance(made, torch.fx.GraphModule):
        made(torch.ones(2))
        made.print_readable(print_output=False)
        compile("\n".join(made.print_readable(print_output=False).splitlines()), "printed", "exec")
    assert not trap.exists()


def test_a_repro_of_a_hostile_log_runs_only_the_list(tmp_path: Path) -> None:
    import subprocess
    import sys

    trap = tmp_path / "trap"
    code = f"__import__('pathlib').Path({str(trap)!r}).touch()"
    graph = parse_graph(
        f'class A"""{code}"""(torch.nn.Module):\n    def forward(self, x: "f32[2]"):\n'
        f"        # File: a\r{code}\rb.py:1 in f, code: \x0b{code}\n"
        f"        make = torch.add(x, 1)\n        return (make, {code!r})\n"
    )
    assert graph.problems == []
    file = tmp_path / "repro.py"
    file.write_text(repro(graph, title=f'"""\n{code}\n"""'))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not trap.exists()


def test_the_list_names_only_what_takes_tensors_and_numbers() -> None:
    groups = json.loads(resources.files("fxscope.graph").joinpath("callables.json").read_text("utf-8"))
    forbidden = {
        *(
            "load",
            "save",
            "from_file",
            "load_library",
            "compile",
            "hub",
            "jit",
            "package",
            "numpy",
            "apply_",
            "map_",
            "backward",
        ),
        *(
            "data_ptr",
            "untyped_storage",
            "storage",
            "set_",
            "register_hook",
            "share_memory_",
            "eval",
            "exec",
            "open",
            "getattr",
        ),
        *(
            "attrgetter",
            "methodcaller",
            "itemgetter",
            "resize_",
            "record_stream",
            "from_numpy",
            "frombuffer",
            "vmap",
            "print",
        ),
    }
    for group, names in groups.items():
        assert not forbidden & set(names), group
        assert all(name.isidentifier() for name in names), group
        assert not any(name.startswith("__") for name in names), group
    text = [name for name in groups["torch.ops.aten"] if name in dir(torch.ops.aten)]
    for name in text:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            for argument in getattr(packet, overload)._schema.arguments:
                assert argument.name != "filename", name
                assert "Storage" not in str(argument.type) or name == "set_", name


def test_a_function_that_this_python_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("math.exp2", raising=False)  # new in Python 3.11
    with pytest.raises(MissingError, match=r"^Python 3\.\d+\.\d+ has no math\.exp2, which the graph calls"):
        resolve("math.exp2")


def test_every_name_in_the_list_resolves_to_a_callable_of_this_torch() -> None:
    groups = json.loads(resources.files("fxscope.graph").joinpath("callables.json").read_text("utf-8"))
    lacking = []
    for group, names in groups.items():
        if group in ("torch.Tensor properties", "builtins"):
            continue
        for name in names:
            try:
                found = resolve(f"{group}.{name}")
            except (MissingError, UsageError):
                lacking.append(f"{group}.{name}")
            else:
                assert callable(found), (group, name)
    # Those whose kernel trusts its indices are taken with their overload only, which stands for a checked form.
    lacking = [name for name in lacking if f"{name}.default" not in GUARDS]
    if torch.__version__.startswith("2.13."):
        assert lacking == ["torch.ops.higher_order.map", "torch.nn.functional.log_sigmoid"]  # names of other versions
    assert len(lacking) < 40, lacking  # a version lacks a few
