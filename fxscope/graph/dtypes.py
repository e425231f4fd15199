"""Short names of dtypes as graphs print them (torch/utils/_dtype_abbrs.py), with torch's names and sizes."""

from __future__ import annotations

# Short name -> (torch's name, bits of one element).
DTYPES: dict[str, tuple[str, int]] = {
    "f64": ("float64", 64),
    "f32": ("float32", 32),
    "f16": ("float16", 16),
    "bf16": ("bfloat16", 16),
    "f8e4m3fn": ("float8_e4m3fn", 8),
    "f8e5m2": ("float8_e5m2", 8),
    "f8e4m3fnuz": ("float8_e4m3fnuz", 8),
    "f8e5m2fnuz": ("float8_e5m2fnuz", 8),
    "f8e8m0fnu": ("float8_e8m0fnu", 8),
    "f4e2m1fnx2": ("float4_e2m1fn_x2", 8),
    "c32": ("complex32", 32),
    "c64": ("complex64", 64),
    "c128": ("complex128", 128),
    "i64": ("int64", 64),
    "i32": ("int32", 32),
    "i16": ("int16", 16),
    "i8": ("int8", 8),
    "u64": ("uint64", 64),
    "u32": ("uint32", 32),
    "u16": ("uint16", 16),
    "u8": ("uint8", 8),
    "b8": ("bool", 8),
}
TORCH_NAMES = {name: short for short, (name, _) in DTYPES.items()}


def item_bytes(dtype: str) -> float | None:
    """Bytes of one element; None for a dtype this table lacks."""
    entry = DTYPES.get(dtype)
    return entry[1] / 8 if entry else None
