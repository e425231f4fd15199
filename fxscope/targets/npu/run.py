"""Running a program file on numbers of a seed: what ``fxscope npu run`` prints."""

from __future__ import annotations

import zlib

import torch

from fxscope.targets.npu.execute import TORCH, Executor, Memories
from fxscope.targets.npu.machine import Machine
from fxscope.targets.npu.program import Placed, Program


def outputs_of(program: Program, machine: Machine, seed: int, interleaving: int | None = None) -> dict[str, str]:
    """Run once; a line for every output: shape, range and checksum.

    Placed tensors of the weight and input regions get normal numbers of their type; a program without tables gets
    normal f32 numbers in both regions.
    """
    memories = Memories(machine, program.regions)
    generator = torch.Generator().manual_seed(seed)
    placed = [tensor for tensor in program.tensors if tensor.region in ("w", "i")]
    for tensor in placed:
        view = memories.strided(tensor.region, tensor.dtype, tensor.shape, tensor.strides, tensor.offset)
        numbers = torch.randn(tensor.shape, generator=generator)
        view.copy_((numbers * 40).round().clamp(-128, 127) if tensor.dtype in ("i8", "i32") else numbers)
    if not placed:
        for region in ("w", "i"):
            words = memories.bytes[region].view(torch.float32)
            words.copy_(torch.randn(words.shape, generator=generator))
    executor = Executor(program.instructions, machine, memories)
    if interleaving is None:
        executor.run()
    else:
        executor.run_interleaved(interleaving)
    outputs = program.outputs or [_whole(program)]
    return {tensor.name: _describe(memories, tensor) for tensor in outputs if tensor.bytes}


def _whole(program: Program) -> Placed:
    size = program.regions["o"] // 4
    return Placed(name="region o", region="o", offset=0, dtype="f32", shape=(size,), strides=(1,), bytes=4 * size)


def _describe(memories: Memories, tensor: Placed) -> str:
    view = memories.strided(tensor.region, tensor.dtype, tensor.shape, tensor.strides, tensor.offset)
    assert view.dtype == TORCH[tensor.dtype]
    numbers = view.float()
    raw = bytes(view.contiguous().view(-1).view(torch.uint8).tolist())
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    return f"{tensor.dtype}[{shape}] min {numbers.min():.6g} max {numbers.max():.6g} mean {numbers.mean():.6g} crc {zlib.crc32(raw):08x}"
