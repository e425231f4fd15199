"""``python run_scripts.py OUT SCRIPT[::ARG...]...``: runs scripts one after the other in this process, each into its own recording."""

import contextlib
import io
import json
import os
import runpy
import sys

import torch
import torch._dynamo

import fxscope


def main():
    out, scripts = sys.argv[1], sys.argv[2:]
    facts = {}
    for spec in scripts:
        script, *arguments = spec.split("::")
        name = os.path.basename(script).removesuffix(".py") + "".join(arguments)
        torch._dynamo.reset()
        defaults = torch._dynamo.config.save_config()
        sys.argv = [script, *arguments]
        error = None
        with fxscope.record(os.path.join(out, f"{name}.fxscope")), contextlib.redirect_stdout(io.StringIO()):
            try:
                runpy.run_path(script, run_name="__main__")
            except SystemExit as exit_:
                error = f"exit {exit_.code}" if exit_.code else None
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
        torch._dynamo.config.load_config(defaults)
        facts[name] = error
    with open(os.path.join(out, "facts.json"), "w") as file:
        json.dump(facts, file)


if __name__ == "__main__":
    main()
