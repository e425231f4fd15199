"""``python -m fxscope`` is the same as the ``fxscope`` command."""

from __future__ import annotations

from fxscope.cli.main import main

if __name__ == "__main__":
    main()
