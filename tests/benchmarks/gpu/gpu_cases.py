"""The operations of the GPU benchmark: plain PyTorch functions, their inputs, references in float64 and peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

EPS = 1e-6


def bias_relu(x, b):
    return torch.relu(x + b)


def bias_gelu_res(x, b, r):
    return F.gelu(x + b, approximate="tanh") + r


def chain8(x, b, r):
    return torch.tanh(F.silu(torch.relu(x + b) * 0.5 + r)) + x


def swiglu(g, u):
    return F.silu(g) * u


def rmsnorm(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + EPS) * w.float()).to(x.dtype)


def layernorm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def softmax(x):
    return torch.softmax(x, -1)


def add_rmsnorm(x, r, w):
    s = x + r
    return rmsnorm(s, w), s


def scale_mask_softmax(x, m):
    return torch.softmax(x * 0.125 + m, -1)


def rmsnorm_swiglu(g, u, w):
    return rmsnorm(F.silu(g) * u, w)


def cross_entropy_rows(x, t):
    return F.cross_entropy(x, t, reduction="none")


def softmax_from_output(y, g):
    """Softmax backward as autograd has it: from the result."""
    return torch.ops.aten._softmax_backward_data(g, y, -1, y.dtype)


@dataclass
class Case:
    """One row of the table.

    Attributes:
        inputs: Per argument its shape as a function of (rows, cols): "x" full, "w" a column vector, "t" an index per row.
        moved: Full-size tensors that must move, inputs and outputs.
        backward: Measure the backward graph that AOTAutograd gives for ``f`` with the min-cut partitioner.
        shift: Elements by which the first input's base is off 16 bytes.
    """

    f: Callable[..., Any]
    rows: int
    cols: int
    dtype: torch.dtype
    inputs: str
    moved: float
    backward: bool = False
    shift: int = 0
    liger: str = ""
    group: str = "page"
    best_of_page: float | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Short id."""
        kind = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[self.dtype]
        extra = " bwd" if self.backward else ""
        return f"{self.f.__name__}{extra}{' misaligned' if self.shift else ''} {kind} {self.rows}x{self.cols}"

    @property
    def bytes(self) -> float:
        """Bytes that must move."""
        return self.moved * self.rows * self.cols * self.dtype.itemsize

    def make(self, device: str, seed: int = 0) -> list[torch.Tensor]:
        """Inputs of the forward."""
        generator = torch.Generator(device=device).manual_seed(seed)
        out = []
        for position, kind in enumerate(self.inputs):
            if kind == "t":
                out.append(torch.randint(0, self.cols, (self.rows,), generator=generator, device=device))
                continue
            shape = (self.cols,) if kind == "w" else (self.rows, self.cols)
            count = 1
            for size in shape:
                count *= size
            shift = self.shift if position == 0 else 0
            flat = torch.randn(count + shift, generator=generator, device=device, dtype=torch.float32).to(self.dtype)
            out.append(flat[shift:].view(shape))
        if self.f is softmax_from_output:
            out[0] = torch.softmax(out[0].float(), -1).to(self.dtype)
        return out

    def fake(self) -> list[torch.Tensor]:
        """Fake CPU tensors of the same shapes; call under a FakeTensorMode."""
        shapes = {"w": (self.cols,), "x": (self.rows, self.cols), "t": (self.rows,)}
        out = [torch.empty(shapes[kind], dtype=torch.int64 if kind == "t" else self.dtype) for kind in self.inputs]
        if self.shift:
            out[0] = torch.empty(self.rows * self.cols + self.shift, dtype=self.dtype)[self.shift :].view(
                self.rows, self.cols
            )
        return out


BF, F16, F32 = torch.bfloat16, torch.float16, torch.float32
BIG = [(8192, 8192), (65536, 4096), (16384, 16383)]

# The best figure known of a formulation written by hand, GB/s.
PAGE: dict[tuple[str, str, int, int], float] = {
    ("chain8", "bf16", 65536, 4096): 4411, ("chain8", "bf16", 16384, 16383): 4425, ("softmax", "bf16", 8192, 8192): 4164,
    ("rmsnorm", "bf16", 8192, 8192): 4125, ("layernorm", "bf16", 8192, 8192): 4071, ("softmax", "fp32", 8192, 8192): 4226,
    ("rmsnorm", "fp32", 8192, 8192): 4218, ("layernorm", "fp32", 8192, 8192): 4150, ("softmax", "bf16", 65536, 4096): 4289,
    ("rmsnorm", "bf16", 65536, 4096): 4299, ("layernorm", "bf16", 65536, 4096): 4296, ("softmax", "fp32", 65536, 4096): 4338,
    ("rmsnorm", "fp32", 65536, 4096): 4330, ("layernorm", "fp32", 65536, 4096): 4334, ("softmax", "bf16", 16384, 16383): 4258,
    ("softmax", "fp32", 16384, 16383): 4270, ("rmsnorm", "bf16", 16384, 16383): 4201, ("rmsnorm", "fp32", 16384, 16383): 4222,
    ("layernorm", "bf16", 16384, 16383): 3836, ("layernorm", "fp32", 16384, 16383): 3846,
    ("softmax_from_output", "bf16", 16384, 16383): 4386, ("softmax_from_output", "fp32", 16384, 16383): 4418,
    ("softmax_from_output", "bf16", 8192, 8192): 4299, ("softmax_from_output", "fp32", 8192, 8192): 4358,
    ("softmax_from_output", "bf16", 65536, 4096): 4443, ("softmax_from_output", "fp32", 65536, 4096): 4403,
    ("rmsnorm bwd", "bf16", 16384, 16383): 3858, ("rmsnorm bwd", "fp32", 16384, 16383): 3430,
    ("rmsnorm bwd", "bf16", 8192, 8192): 3830, ("rmsnorm bwd", "fp32", 8192, 8192): 4075,
    ("rmsnorm bwd", "bf16", 65536, 4096): 4167, ("rmsnorm bwd", "fp32", 65536, 4096): 4199,
    ("softmax", "bf16", 16384, 16382): 4042, ("softmax", "bf16", 16384, 16380): 4063, ("softmax", "bf16", 65536, 4095): 4303,
    ("softmax", "fp32", 65536, 4095): 4276, ("rmsnorm", "bf16", 16384, 16382): 4113, ("rmsnorm", "bf16", 16384, 16380): 4135,
    ("rmsnorm", "bf16", 65536, 4095): 4250, ("rmsnorm", "fp32", 65536, 4095): 4266, ("layernorm", "bf16", 65536, 4095): 3930,
    ("layernorm", "fp32", 65536, 4095): 4150, ("chain8", "fp32", 16384, 16383): 4417, ("chain8", "fp32", 65536, 4096): 4420,
    ("softmax", "bf16", 262144, 1024): 4303, ("rmsnorm", "bf16", 262144, 1024): 4281, ("softmax", "fp32", 262144, 1024): 4325,
    ("rmsnorm", "fp32", 262144, 1024): 4318, ("softmax", "bf16", 262144, 1023): 4277, ("rmsnorm", "bf16", 262144, 1023): 4268,
    ("softmax", "fp32", 262144, 1023): 4305, ("rmsnorm", "fp32", 262144, 1023): 4312, ("softmax", "bf16", 1048576, 256): 4304,
    ("rmsnorm", "bf16", 1048576, 256): 4290, ("softmax", "fp32", 1048576, 256): 4311, ("rmsnorm", "fp32", 1048576, 256): 4310,
}  # fmt: skip

OPS: dict[str, tuple[Callable[..., Any], str, float, str]] = {
    "bias_relu": (bias_relu, "xw", 2, ""),
    "bias_gelu_res": (bias_gelu_res, "xwx", 3, ""),
    "chain8": (chain8, "xwx", 3, ""),
    "swiglu": (swiglu, "xx", 3, "swiglu"),
    "rmsnorm": (rmsnorm, "xw", 2, "rmsnorm"),
    "layernorm": (layernorm, "xww", 2, "layernorm"),
    "softmax": (softmax, "x", 2, "softmax"),
    "softmax_from_output": (softmax_from_output, "xx", 3, "softmax_bwd"),
    "rmsnorm bwd": (rmsnorm, "xw", 3, "rmsnorm"),
    "layernorm bwd": (layernorm, "xww", 3, "layernorm"),
    "add_rmsnorm": (add_rmsnorm, "xxw", 4, ""),
    "scale_mask_softmax": (scale_mask_softmax, "xx", 3, ""),
    "rmsnorm_swiglu": (rmsnorm_swiglu, "xxw", 3, ""),
    "cross_entropy_rows": (cross_entropy_rows, "xt", 1, ""),
}


def case(op: str, dtype: torch.dtype, rows: int, cols: int, **more: Any) -> Case:
    """A case of the table of operations."""
    f, inputs, moved, liger = OPS[op]
    kind = {BF: "bf16", F16: "fp16", F32: "fp32"}[dtype]
    best = PAGE.get((op, kind, rows, cols))
    return Case(
        f, rows, cols, dtype, inputs, moved, backward=op.endswith("bwd"), liger=liger, best_of_page=best, **more
    )


def all_cases() -> list[Case]:
    """Every row: the two reference pages, then what goes beyond them."""
    out = []
    for op in ("bias_relu", "bias_gelu_res", "chain8", "swiglu", "rmsnorm", "layernorm", "softmax"):
        out += [case(op, dtype, *shape) for shape in BIG for dtype in (BF, F32)]
    for op in ("softmax_from_output", "rmsnorm bwd", "layernorm bwd"):
        out += [case(op, dtype, *shape) for shape in BIG for dtype in (BF, F32)]
    out += [case(op, dtype, 65536, 4095) for op in ("softmax", "rmsnorm", "layernorm") for dtype in (BF, F32)]
    out += [case(op, BF, 16384, cols) for op in ("softmax", "rmsnorm") for cols in (16382, 16380)]
    narrow = [(262144, 1024), (262144, 1023), (1048576, 256)]
    out += [case(op, dtype, *shape) for op in ("softmax", "rmsnorm") for shape in narrow for dtype in (BF, F32)]
    for op in ("add_rmsnorm", "scale_mask_softmax", "rmsnorm_swiglu", "cross_entropy_rows"):
        out += [case(op, BF, *shape, group="beyond") for shape in ((65536, 4096), (16384, 16383))]
    for op in ("chain8", "softmax", "rmsnorm", "layernorm"):
        out += [case(op, F16, *shape, group="beyond") for shape in ((65536, 4096), (16384, 16383))]
    out += [case(op, BF, 65536, 4096, group="beyond", shift=1) for op in ("bias_relu", "chain8", "softmax", "rmsnorm")]
    small = [(64, 1024), (1024, 4096)]
    for op in ("bias_relu", "bias_gelu_res", "chain8", "swiglu", "rmsnorm", "layernorm", "softmax"):
        out += [case(op, dtype, *shape, group="small") for shape in small for dtype in (BF, F32)]
    return out
