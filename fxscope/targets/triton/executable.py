"""A compiled island: its kernels in order, the library calls between them, and the Python that starts them."""

from __future__ import annotations

import functools
import linecache
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node

from fxscope.targets.target import Kind, Listing
from fxscope.targets.triton import module
from fxscope.targets.triton.emit import Source, Writer
from fxscope.targets.triton.expand import specialise
from fxscope.targets.triton.fuse import Plan
from fxscope.targets.triton.ir import Kernel, Memory
from fxscope.targets.triton.matmul import MatmulNest, epilogues
from fxscope.targets.triton.nest import Nest
from fxscope.targets.triton.schedule import Schedule, candidates
from fxscope.targets.triton.siblings import Siblings, launches, write_siblings
from fxscope.targets.triton.tiles import Tiled, nest_of
from fxscope.targets.triton.titles import comments, free_name, kernel_name

Chooser = Callable[["Nest", Callable[["Nest", Schedule], Source], str, dict[str, torch.Tensor]], Schedule]


def first_candidate(nest: Nest, write: Any, name: str, values: Any) -> Schedule:
    """The formulation that is taken untimed."""
    return candidates(nest)[0]


def tuned(device: torch.device) -> Chooser:
    """Choose by measurement on a device."""
    from fxscope.targets.triton.tune import Tuner

    return Tuner(device).choose


class Compiled:
    """An island compiled for inputs of one signature."""

    def __init__(
        self,
        island: GraphModule,
        inputs: Sequence[Any],
        choose: Chooser,
        device: torch.device,
        interpreted: bool,
        *,
        bind: bool = True,
    ) -> None:
        self.graph = specialise(island, inputs)
        self.plan = Plan(self.graph)
        for memory, value in zip(self.plan.inputs, inputs, strict=True):
            if memory is not None:
                memory.misaligned = _shift(value)
        self.device = device
        self.interpreted = interpreted
        self.overlap = not interpreted and overlaps(device)
        self.inputs: Sequence[Any] = inputs
        self.values = {
            m.name: x
            for m, x in zip(self.plan.inputs, inputs, strict=True)
            if m is not None and not isinstance(x, FakeTensor)
        }
        self.sources: list[Source] = []
        self.launches = 0
        self.host = self._write(choose)
        self.inputs = ()
        self.values = {}  # the example inputs served the tuning; do not keep them alive
        self.call: Callable[..., tuple[Any, ...]]
        if bind:
            self.call = self._bind()

    # -- writing

    def _write(self, choose: Chooser) -> str:
        notes = comments(self.graph)
        names = [m.name if m is not None else free_name(self.plan, "number") for m in self.plan.inputs]
        lines = [*self._fits(names), f"def call({', '.join(names)}):"]
        fused = self._products(choose, notes)
        products = {i: nest.library for i, (nest, _, _) in fused.items() if isinstance(nest, MatmulNest)}
        behind_library = False
        for kernels in launches(self.plan, products):
            kernel = kernels[0]
            if kernel.extern is not None:
                lines.append(self._extern_line(kernel))
                self.launches += 1
                behind_library = True
                continue
            if not kernel.stores:
                continue
            nests = [nest_of(each, self.plan.axes) for each in kernels]  # not before the kernels ahead are sized
            if kernel.index in fused:
                nest, schedule, name = fused[kernel.index]
            else:
                nest, schedule = (Siblings(nests) if len(nests) > 1 else nests[0]), None
                name = kernel_name(self.plan, nest.kernel)
            name = free_name(self.plan, name)
            # A library's kernel lets nobody start early; one that waits for it is there 0.2 us later than one that is not in place yet.
            overlap = self.overlap and not behind_library
            behind_library = False
            writer = functools.partial(write, name=name, notes=notes, plan=self.plan, overlap=overlap)
            if schedule is None:
                schedule = choose(nest, writer, name, self.values)
            source = writer(nest, schedule)
            self.sources.append(source)
            for memory in source.shifted:
                pitch = -(-nest.col_count // 64) * 64
                lines.append(f"    {memory.name}_shifted = shifted_copies({memory.name}, {nest.col_count}, {pitch})")
                self.launches += 1
            for _, memory, _ in nest.kernel.stores:
                lines.append(f"    {memory.name} = {_empty(memory)}")
            args = [f"{m.name}_shifted" for m in source.shifted] + [m.name for m in source.args]
            lines.append(f"    {name}({', '.join(args)})")
            self.launches += 1
        outputs = [self._output_text(memory, seen) for memory, seen in self.plan.outputs]
        lines.append(f"    return ({', '.join(outputs)}{',' if outputs else ''})")
        return "\n".join(lines) + "\n"

    def _products(self, choose: Chooser, notes: dict[str, str]) -> dict[int, tuple[Nest, Schedule | None, str]]:
        """Pointwise kernels that take the matrix product before them along, because that was measured to be faster."""
        chosen: dict[int, tuple[Nest, Schedule | None, str]] = {}
        for index, nest in epilogues(self.plan).items():
            name = kernel_name(self.plan, nest.kernel)
            tail = self.plan.kernels[index]
            nest.tail = nest_of(tail, self.plan.axes)
            nest.write_tail = functools.partial(write, name=f"{name}_tail", notes=notes, plan=self.plan)
            writer = functools.partial(write, name=name, notes=notes, plan=self.plan, overlap=self.overlap)
            schedule = choose(nest, writer, name, self.values)
            if schedule.form != "library":
                chosen[index] = nest, schedule, name
        return chosen

    def _fits(self, names: list[str]) -> list[str]:
        """A function that says whether inputs are what this was compiled for."""
        tests = []
        for name, memory, value in zip(names, self.plan.inputs, self.inputs, strict=True):
            if memory is None:
                tests.append(f"{name} == {value!r}")
                continue
            test = f"{name}.shape == {memory.shape} and {name}.stride() == {memory.strides} and {name}.dtype is {memory.dtype}"
            tests.append(f"{test} and {name}.data_ptr() & 15 == {_shift(value)} and {name}.device == device")
        return [f"def fits({', '.join(names)}):", f"    return {' and '.join(tests) or True}", ""]

    def _output_text(self, memory: Memory | None, seen: Any) -> str:
        if memory is None:
            return _constant(seen)
        if seen is None:
            return memory.name
        return _as_strided(memory, seen, self.plan)

    def _extern_line(self, kernel: Kernel) -> str:
        assert kernel.extern is not None
        target, args, kwargs = kernel.extern
        words = []
        for arg in args:
            if isinstance(arg, tuple):
                memory, seen = arg
                words.append(memory.name if seen is None else _as_strided(memory, seen, self.plan))
            else:
                words.append(repr(arg))
        words += [f"{name}={value!r}" for name, value in kwargs.items()]
        home = next(key for key, index in self.plan.home.items() if index == kernel.index)
        return f"    {self.plan.memory[home].name} = torch.ops.{target}({', '.join(words)})"

    def _bind(self) -> Callable[..., tuple[Any, ...]]:
        space: dict[str, Any] = {
            "torch": torch,
            "device": self.device,
            "empty": torch.empty_strided,
            "shifted_copies": self._shifted,
        }
        index = self.device.index or 0
        for source in self.sources:
            if self.interpreted:
                space[source.name] = module.interpreted_launcher(source)
            else:
                binary = module.compile_binary(source, torch.cuda.get_device_capability(self.device))
                space[source.name] = binary.launcher(index)
        name = f"<fxscope triton host {id(self)}>"
        linecache.cache[name] = (len(self.host), None, self.host.splitlines(True), name)
        exec(compile(self.host, name, "exec"), space)
        self.fits: Callable[..., bool] = space["fits"]
        call: Callable[..., tuple[Any, ...]] = space["call"]
        return call

    def _shifted(self, source: torch.Tensor, n: int, pitch: int) -> torch.Tensor:
        return shifted_copies(source, n, pitch, self.interpreted)


def shifted_copies(source: torch.Tensor, n: int, pitch: int, interpreted: bool) -> torch.Tensor:
    """Eight (or as many as fit 16 bytes) copies of a vector, each starting one element further on."""
    copies = 16 // source.element_size()
    target = torch.empty((copies, pitch), dtype=source.dtype, device=source.device)
    if interpreted:
        target.zero_()
        for shift in range(copies):
            target[shift, : n - shift] = source[shift:n]
        return target
    from fxscope.targets.triton import device

    block = 1024
    device.shifted_copies[(copies, -(-pitch // block))](source, target, N=n, PITCH=pitch, BLOCK=block, num_warps=4)
    return target


def overlaps(device: torch.device) -> bool:
    """Whether a device can start a kernel before the one ahead has ended; asked of no GPU, as for the newest."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)


def write(
    nest: Nest, schedule: Schedule, name: str, notes: dict[str, str], plan: Plan, overlap: bool = False
) -> Source:
    """Write one kernel with a schedule, and size what the schedule decides: the partial sums."""
    if isinstance(nest, Siblings):
        return write_siblings(nest, schedule, name, notes, overlap)
    if isinstance(nest, Tiled) and schedule.form != "tiles":
        nest = nest.plain
    kernel = nest.kernel
    if nest.partials:
        for value, memory, dims in kernel.stores:
            if value.partial:
                shape = tuple(s for s in plan.axes.shape(dims))
                width = math.prod(shape)
                memory.shape, memory.strides = (schedule.programs, width), (width, 1)
        plan.axes.sizes[plan.partials[kernel.index]] = schedule.programs
    return Writer(nest, schedule, name, notes).write(overlap)


def _empty(memory: Memory) -> str:
    return f"empty({memory.shape}, {memory.strides}, dtype={memory.dtype}, device=device)"


def _as_strided(memory: Memory, seen: Node, plan: Plan) -> str:
    value = seen.meta["val"]
    key, _ = plan.root(seen)
    base = key[0].meta["val"]
    base = base[key[1]] if isinstance(base, (tuple, list)) else base
    offset = int(value.storage_offset() - base.storage_offset())
    place = f"{memory.name}.storage_offset() + {offset}" if memory.source else str(offset)
    return f"{memory.name}.as_strided({tuple(value.shape)}, {tuple(value.stride())}, {place})"


def _constant(seen: Any) -> str:
    return repr(seen) if not isinstance(seen, Node) else repr(seen.meta["val"])


class TritonExecutable:
    """A compiled island that recompiles itself for inputs of another shape, layout, dtype or alignment."""

    kind: Kind

    def __init__(
        self, island: GraphModule, inputs: Sequence[Any], choose: Chooser, device: torch.device, interpreted: bool
    ) -> None:
        self.island, self.choose, self.device, self.interpreted = island, choose, device, interpreted
        self.kind = "interpreted" if interpreted else "measured"
        self.launches = sum(node.op == "call_function" for node in island.graph.nodes)  # what eager would start
        self.variants: dict[tuple[Any, ...], Compiled | None] = {}
        self.compiling = threading.Lock()  # what one thread compiles and tunes the others wait for
        symbolic = any(
            isinstance(size, torch.SymInt) for x in inputs if isinstance(x, torch.Tensor) for size in x.shape
        )
        self.latest = None if symbolic or any(isinstance(x, torch.SymInt) for x in inputs) else self._variant(inputs)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Run once."""
        compiled = self.latest
        if compiled is None or not compiled.fits(*inputs):
            compiled = self._variant(inputs)
        if compiled is None:
            with torch.no_grad():
                return tuple(self.island(*inputs))
        return compiled.call(*inputs)

    def _variant(self, inputs: Sequence[Any]) -> Compiled | None:
        key = signature(inputs)
        with self.compiling:
            if key not in self.variants:
                empty = any(isinstance(x, torch.Tensor) and x.numel() == 0 for x in inputs)
                # Nothing to compute in parallel: eager says what zero-size tensors and reductions over nothing are.
                self.variants[key] = (
                    None if empty else Compiled(self.island, inputs, self.choose, self.device, self.interpreted)
                )
            found = self.variants[key]
        self.latest = found
        if found is not None:
            self.launches = found.launches
        return found  # not `latest`: another thread may have set that since

    def listings(self) -> Sequence[Listing]:
        """The generated kernels, then the Python that starts them."""
        compiled = self.latest
        if compiled is None:
            return ()
        out = []
        for source in compiled.sources:
            head = module.header(source.text, interpreted=False)
            shift = head.count("\n")
            lines = {line + shift: nodes for line, nodes in source.lines_to_nodes.items()}
            out.append(Listing(title=source.name, language="python", text=head + source.text, lines_to_nodes=lines))
        return (*out, Listing(title="host", language="python", text=compiled.host))

    def modelled_seconds(self) -> float | None:
        """None: what this runs is measured."""
        return None


def signature(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a compiled island depends on."""
    return tuple(
        (x.shape, x.stride(), x.dtype, x.device, _shift(x)) if isinstance(x, torch.Tensor) else x for x in inputs
    )


def _shift(x: torch.Tensor) -> int:
    """Bytes past a multiple of 16 at which a tensor starts; a fake tensor stands for an aligned one."""
    return 0 if isinstance(x, FakeTensor) else x.data_ptr() & 15
