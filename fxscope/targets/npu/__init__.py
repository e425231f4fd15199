"""The NPU target: instruction set, compiler, executor, cycle model."""
