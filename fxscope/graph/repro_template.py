"""The parts of a repro file that are the same for every graph."""

from __future__ import annotations

HEAD = '''\
"""{title}

Run: python FILE [--device cpu|cuda] [--backend inductor]. {values}
"""

import argparse
import contextlib
import math
import operator

import torch
{imports}
parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
parser.add_argument("--backend", help="compile too, with this torch.compile backend, and compare")
{option}options = parser.parse_args()
DEVICE = torch.device(options.device)  # for what the log has on an accelerator
HOST = {host}  # for what the log has on the CPU


def make(seed, shape, stride, dtype, device, low=0, high=2, positive=False, scale=1.0, center=0.0):
    """A tensor of the recorded shape, strides and dtype, its values from a seed."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        data = torch.rand(shape, generator=generator) < (1.0 if low else 0.5)
    elif dtype.is_complex:
        real, imaginary = (torch.randn(shape, generator=generator) * scale for _ in range(2))
        data = torch.complex(real, imaginary)
    elif dtype.is_floating_point:
        data = torch.rand(shape, generator=generator) + 0.5
        if not positive:
            generator.manual_seed(seed)
            data = torch.randn(shape, generator=generator) * scale + center
    else:
        data = torch.randint(low, max(low + 1, min(high, torch.iinfo(dtype).max)), shape, generator=generator)
    data = data.to(dtype)
    if stride is not None and list(data.stride()) != list(stride):
        laid_out = torch.empty_strided(shape, stride, dtype=dtype)
        if data.numel():
            index = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
            laid_out[index].copy_(data[index])
        data = laid_out
    return data.to(device)

'''
TAIL = """

if __name__ == "__main__":
    model = {cls}()
    torch.manual_seed(0)
    with {around}:
        outputs = model(*inputs())
    flat = [value for value in (outputs if isinstance(outputs, (list, tuple)) else [outputs])]
    for number, value in enumerate(flat):
        if isinstance(value, torch.Tensor):
            total = value.double().abs().sum().item() if not value.is_complex() else value.abs().sum().item()
            print(f"output {{number}}: {{value.dtype}} {{list(value.shape)}} sum of magnitudes {{total:.6g}}")
        else:
            print(f"output {{number}}: {{value}}")
    if options.backend:
        torch.manual_seed(0)
        with {around}:
            compiled = torch.compile(model, backend=options.backend)(*inputs())
        for number, (one, other) in enumerate(zip(flat, compiled if isinstance(compiled, (list, tuple)) else [compiled])):
            if isinstance(one, torch.Tensor) and one.numel():
                worst = (one.double() - other.double()).abs().max().item()
                print(f"output {{number}}: differs from eager by at most {{worst:.3g}}")
"""

# With a file of recorded tensors: an option, and a function around every made-up value.
OPTION = 'parser.add_argument("--tensors", default={path!r}, help="recorded inputs and constants (safetensors); \'\' for made-up ones")\n'
KEPT = '''
KEPT = {}
if options.tensors:
    from safetensors.torch import load_file

    KEPT = load_file(options.tensors)


def kept(name, made):
    """The recorded value of that name, on the device and with the strides of the made-up one; else the made-up one."""
    value = KEPT.get(name)
    if value is None:
        return made
    if not isinstance(made, torch.Tensor):
        return value.item()
    if value.shape != made.shape:
        return value.to(made.device)
    overlapping = any(step == 0 and size > 1 for size, step in zip(made.shape, made.stride()))
    return value.to(made.device) if overlapping else made.copy_(value)

'''
