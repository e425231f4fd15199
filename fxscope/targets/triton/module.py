"""From a kernel's source text to something that launches: a Python module on disk, a binary, a launcher.

Everything that touches Triton's inside is here: ASTSource, CompiledKernel and the interpreter.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fxscope.errors import MissingError, first_line
from fxscope.targets.triton.cache import cache_dir, keep
from fxscope.targets.triton.emit import Source
from fxscope.targets.triton.ir import Memory

Launcher = Callable[..., None]
_LOADING = threading.Lock()
_INTERPRETER = threading.Lock()  # it is one for all threads
HEADER = "import triton\nimport triton.language as tl\n{imports}\n\n\n"
POINTERS = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.bool: "*i1", torch.int8: "*i8",
    torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.uint8: "*u8",
}  # fmt: skip


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter: asked for with TRITON_INTERPRET=1, or no CUDA device."""
    return os.environ.get("TRITON_INTERPRET") == "1" or not torch.cuda.is_available()


def header(source_text: str, interpreted: bool) -> str:
    """The import lines of a kernel's module."""
    names = [name for name in ("device", "libdevice") if f"{name}." in source_text]
    names += ["gdc"] * ("gdc_wait()" in source_text)
    if interpreted:
        imports = f"from fxscope.targets.triton.interpreted import {', '.join(names)}" if names else ""
    else:
        lines = {
            "device": "from fxscope.targets.triton import device",
            "libdevice": "from triton.language.extra import libdevice",
            "gdc": "from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait",
        }
        imports = "\n".join(lines[name] for name in names)
    return HEADER.format(imports=imports).replace("\n\n\n\n", "\n\n\n")


def load(source: Source, interpreted: bool) -> Any:
    """The kernel function, in a module that is named after its text.

    The text itself is run; its file is for readers, debuggers and profilers. What else may be in that file is never run.
    """
    if interpreted:
        _interpret()
    text = header(source.text, interpreted) + source.text
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    name = f"fxscope_triton_{digest}"
    with _LOADING:  # programs of several threads may come with the same kernel
        if name not in sys.modules:
            path = cache_dir() / "sources" / digest[:2] / f"{name}.py"
            if not _holds(path, text):
                keep(path, text)
            module = ModuleType(name)
            module.__file__ = str(path)
            # Triton asks `inspect` for the source, which need not find the file.
            linecache.cache[str(path)] = (len(text), None, text.splitlines(True), str(path))
            exec(compile(text, str(path), "exec"), module.__dict__)
            sys.modules[name] = module
    return getattr(sys.modules[name], source.name)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        return False  # absent, or not what was written there


def _interpret() -> None:
    """Switch Triton to its interpreter, also where it was imported before."""
    os.environ["TRITON_INTERPRET"] = "1"
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction

    from fxscope.targets.triton.interpreted import (
        count_with_scalars,
        multiply_bfloat16,
        round_to_bfloat16,
        spread_truth,
    )

    round_to_bfloat16()
    multiply_bfloat16()
    spread_truth()
    count_with_scalars()
    # Triton decides at import whether the functions of its own library (tl.sum, tl.max...) are interpreted.
    for module in (tl, tl.standard):
        for name, member in list(vars(module).items()):
            if isinstance(member, JITFunction):
                setattr(module, name, InterpretedFunction(member.fn))


@dataclass
class Binary:
    """A compiled kernel.

    Attributes:
        kernel: Triton's CompiledKernel.
    """

    kernel: Any
    grid: tuple[int, ...]

    def resources(self) -> tuple[int, int]:
        """Registers a thread and spilled ones (needs the device)."""
        self.kernel._init_handles()
        return int(self.kernel.n_regs), int(self.kernel.n_spills)

    def launcher(self, device: int) -> Launcher:
        """Starts the kernel on the current stream with nothing between the call and the driver but Triton's own stub."""
        self.kernel._init_handles()
        run, function, packed = self.kernel.run, self.kernel.function, self.kernel.packed_metadata
        x, y, z = (*self.grid, 1, 1)[:3]
        stream = torch._C._cuda_getCurrentRawStream

        def launch(*args: torch.Tensor) -> None:
            run(x, y, z, stream(device), function, packed, None, None, None, *args)

        return launch


_hashing: list[threading.Thread] = []  # one, once it was started
_one = threading.Lock()


def hash_early() -> threading.Thread:
    """Let Triton hash its own files, a library of 450 MB among them, beside what else is to be done; once per process.

    Its first compile in a process waits for that: half a second to a whole one, of which nothing is left where a graph is traced meanwhile.
    The thread is a daemon, so that nobody waits for it at exit; after a fork it counts as ended, and the child hashes where it compiles.
    """
    # Imported by the caller: two threads that import parts of one package can lock each other out.
    from triton.runtime import cache

    def run() -> None:
        try:
            cache.triton_key()
        except Exception:  # noqa: BLE001 -- the compile does the same again, and tells
            return

    with _one:
        if not _hashing:
            _hashing.append(threading.Thread(target=run, name="fxscope-triton-key", daemon=True))
            _hashing[0].start()
    return _hashing[0]


def compile_binary(source: Source, capability: tuple[int, int], aligned: Sequence[bool] | None = None) -> Binary:
    """Compile for an NVIDIA GPU; needs no GPU itself, and Triton keeps the result on disk.

    Args:
        source: The kernel.
        capability: Of the GPU: (9, 0) for an H100 or H200.
        aligned: Per argument of the kernel whether its address is a multiple of 16; default all are.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = load(source, interpreted=False)
    memories: list[Memory] = [*source.shifted, *source.args]
    signature = dict(zip(function.arg_names, (POINTERS[m.dtype] for m in memories), strict=True))
    flags = aligned if aligned is not None else [not m.misaligned for m in memories]
    attributes = {(i,): [["tt.divisibility", 16]] for i, flag in enumerate(flags) if flag}
    options: dict[str, Any] = {"num_warps": source.schedule.warps}
    if source.schedule.stages:
        options["num_stages"] = source.schedule.stages
    if source.overlap:
        options["launch_pdl"] = True
    if source.schedule.maxnreg:
        options["maxnreg"] = source.schedule.maxnreg
    target = GPUTarget("cuda", capability[0] * 10 + capability[1], 32)
    hash_early().join()  # what Triton keeps of it has no lock: threads that compile would each hash everything
    kernel = triton.compile(ASTSource(function, signature, {}, attributes), target=target, options=options)
    return Binary(kernel, source.grid)


def interpreted_launcher(source: Source) -> Launcher:
    """Runs the kernel in Triton's interpreter."""
    function = load(source, interpreted=True)

    def launch(*args: torch.Tensor) -> None:
        import numpy as np

        with (
            _INTERPRETER,
            np.errstate(all="ignore"),
        ):  # masked-off elements may be infinite; a GPU says nothing of them either
            function[source.grid](*args)

    return launch


def missing() -> str | None:
    """None where kernels can run here; else what is missing and how to mend it."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        if error.name == "triton":
            return "the package triton is not installed: pip install triton (Linux, x86-64)"
        return f"the package triton cannot be imported ({first_line(error)}): install the one that this torch asks for"
    if torch.version.hip:
        return "generated kernels hold NVIDIA instructions and do not run on ROCm: use the executor inductor"
    if torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 0):
        name = torch.cuda.get_device_name()
        return (
            f"{name} has compute capability {torch.cuda.get_device_capability()}; generated kernels need 8.0 or later"
        )
    return None


def require() -> None:
    """Raise what ``missing`` says.

    Raises:
        MissingError: Triton, or a device that it supports, is absent.
    """
    text = missing()
    if text:
        raise MissingError(f"target triton: {text}")
