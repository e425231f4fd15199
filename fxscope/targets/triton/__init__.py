"""The Triton target: generated fused kernels."""
