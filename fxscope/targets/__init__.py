"""Where islands run: the protocol, the reference executors, and one folder per target."""
