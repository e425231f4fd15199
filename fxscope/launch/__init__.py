"""Run executables side by side: inputs, correctness, timing, traffic."""
