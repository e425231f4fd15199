"""What a scrubbed log hides, and what stands in its place: paths, source text, names, hosts.

The same thing gets the same stand-in everywhere, so that structure, and with it a diagnosis, survives.
"""

from __future__ import annotations

import keyword
import re
from typing import Any, Literal

from fxscope.source import base_name

Topic = Literal["source", "paths", "names", "hosts"]
TOPICS: tuple[Topic, ...] = ("source", "paths", "names", "hosts")
REMOVED = "<removed>"
_SHORT = 200  # characters

# Packages that anybody may have: their paths say nothing about the user, and findings quote them.
PUBLIC_PACKAGES = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "torchgen",
        "triton",
        "numpy",
        "transformers",
        "diffusers",
        "timm",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "einops",
        "xformers",
        "flash_attn",
        "vllm",
        "peft",
        "datasets",
        "safetensors",
        "functorch",
        "deepspeed",
        "torchmetrics",
        "huggingface_hub",
    ]
)
# A path of at least two parts: /a/b.py, C:\a\b.py, a/b.py. A fraction or a MIME type is not one, so relative paths need .py.
_PATH = re.compile(
    r"(?<![\w/.:])(?:[A-Za-z]:)?(?:[\\/][^\\/\s\"'`:,;<>()\[\]{}|*?=]+)+[\\/]?|(?<![\w/.\-])[\w.\-]+(?:[\\/][\w.\-]+)*\.py[cx]?\b"
)
_PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/](.*)$", re.DOTALL)
_STANDARD = re.compile(r"[\\/](lib(?:64)?[\\/]python[\d.]+[\\/].*)$", re.DOTALL)
_TRACEBACK = re.compile(
    r'^([ \t|]*File "[^"\n]+", line \d+(?:, in [^\n]*)?\n)((?:[ \t|]+(?!File ")[^\n]*\n?)?)', re.MULTILINE
)
_MARKERS = re.compile(r"^[ \t|]*[~^][ ~^]*\n?", re.MULTILINE)
_GRAPH_COMMENT = re.compile(r"(# File: [^\n]*?, code: )[^\n]*")
_GUARD_COMMENT = re.compile(r"(?<=  # )(?!_?dynamo/|torch/)[^\n#]*?(?=  # [^\n#]+:\d+ in )")
# Lengths are bounded where a pattern could begin at every character: a stranger's log must not take quadratic time.
_URL = re.compile(r"\b[a-z][a-z0-9+.\-]{0,31}://[^\s\"'<>)]+", re.IGNORECASE)
_PUBLIC_URL = re.compile(r"https?://(?:docs\.)?(?:pytorch\.org|meta-pytorch\.github\.io|github\.com/pytorch)")
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[\w.+\-]{1,64}@[\w\-]+\.[\w.\-]+\b")
_CHAIN = re.compile(r"(?<!\w)([LG])\[['\"]([A-Za-z_]\w*)['\"]\]((?:\.\w+|\[['\"]?\w+['\"]?\])*)")
_LINK = re.compile(r"[A-Za-z_]\w*")
# Words that a log needs to be read: Dynamo's own source notation, and what tensors and modules are made of.
_VOCABULARY = frozenset(
    [
        "self",
        "args",
        "kwargs",
        "forward",
        "backward",
        "__call__",
        "call_function",
        "call_method",
        "output",
        "placeholder",
        "get_attr",
        "weight",
        "bias",
        "training",
        "dtype",
        "device",
        "shape",
        "stride",
        "size",
        "type",
        "ndim",
        "code",
        "inner",
        "inputs",
        "outputs",
        "input",
        "target",
        "name",
        "line",
        "file",
        "stack",
        "torch",
        "aten",
        "prims",
        "dynamo",
        "inductor",
        "graph",
        "guard",
        "guards",
        "frame",
        "compile",
        "expected",
        "actual",
        "index",
        "tensor",
        "model",
        "module",
        "modules",
        "parameters",
        "buffers",
        "running_mean",
        "running_var",
        "num_batches_tracked",
        "eps",
        "momentum",
        "closure",
        "cell_contents",
        "wrapper",
        "fn",
        "func",
        "main",
        "reason",
        "kind",
        "value",
        "none",
        "true",
        "false",
        "static",
        "dynamic",
        "cpu",
        "cuda",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "bool",
        "in",
        "out",
        "data",
        "item",
        "requires_grad",
        "grad",
        "default",
        "tensors",
        "version",
        "python",
        "user",
        "context",
        "method",
        "hint",
        "explanation",
        "function",
        "source",
        "symbol",
        "phase",
        "print",
        "warn",
        "log",
    ]
)
_SOURCE_KEYS = frozenset({"loc", "code", "source_code", "source_line"})
_ARGUMENT_KEYS = frozenset({"argv", "command"})  # may hold passwords
_HOST_KEYS = frozenset({"host", "hostname"})
# Artifacts that are source (or bytecode with its names and constants) through and through.
_SOURCE_ARTIFACTS = re.compile(r"_BYTECODE$|^fx_graph_runnable$|^dynamo_bytecode|^bytecode")


class Rules:
    """Rewrites strings; remembers every stand-in that it gave.

    Args:
        hide: Topics to remove; the others stay as they are.
    """

    def __init__(self, hide: frozenset[Topic]) -> None:
        self.hide = hide
        self.hosts: set[str] = set()
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._name_pattern: re.Pattern[str] | None = None
        self._known: dict[str, str] = {}  # of short texts, which a log repeats thousands of times
        self._vocabulary = _VOCABULARY | set(keyword.kwlist) | _callable_names()

    def learn(self, text: str) -> None:
        """Collect the user's identifiers from guard sources such as ``L['self'].blocks[0].scale``."""
        for scope, root, links in _CHAIN.findall(text):
            self.learn_name(root)
            if scope == "L":  # what hangs on a global is most often a module's public function
                for link in _LINK.findall(links):
                    self.learn_name(link)

    def learn_name(self, name: str) -> None:
        """Collect one identifier of the user's program; words that a log needs to be read are no secret."""
        bare = name.strip("_")
        if len(bare) < 2 or bare.lower() in self._vocabulary or name.startswith("__") or not name.isidentifier():
            return
        if bare not in self._names:
            self._names[bare] = f"name{len(self._names) + 1}"
            self._name_pattern = None
            self._known.clear()

    def removes_artifact(self, name: str) -> bool:
        """Whether a whole payload goes because it is nothing but source."""
        return "source" in self.hide and bool(_SOURCE_ARTIFACTS.search(name))

    def text(self, text: str) -> str:
        """Rewrite free text: a payload, a message, a guard."""
        if len(text) > _SHORT:
            return self._rewrite(text)
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._rewrite(text)
        return known

    def _rewrite(self, text: str) -> str:
        if "source" in self.hide:
            text = _TRACEBACK.sub(lambda m: m[1] + (f"    {REMOVED}\n" if m[2].strip() else m[2]), text)
            text = _MARKERS.sub("", text)
            text = _GRAPH_COMMENT.sub(rf"\1{REMOVED}", text)
            text = _GUARD_COMMENT.sub(REMOVED, text)
        if "hosts" in self.hide:
            text = _URL.sub(lambda m: m[0] if _PUBLIC_URL.match(m[0]) else "scheme://host1", text)
            text = _ADDRESS.sub("host1", text)
            for host in self.hosts:
                text = text.replace(host, "host1")
        parts: list[str] = []
        position = 0
        for found in _PATH.finditer(text):  # names apply between paths: torch/nn/modules is nobody's secret
            parts.append(self._rename(text[position : found.start()]))
            parts.append(self.path(found[0]) if "paths" in self.hide else found[0])
            position = found.end()
        parts.append(self._rename(text[position:]))
        return "".join(parts)

    def path(self, path: str) -> str:
        """Stand-in of one path; public packages and the standard library keep what lies below their root."""
        package = _PACKAGE.search(path)
        if package:
            if re.split(r"[\\/]", package[1])[0] in PUBLIC_PACKAGES:
                return f"/python/site-packages/{package[1]}"
            return f"/python/site-packages/{self._file(path)}"
        standard = _STANDARD.search(path)
        if standard:
            return f"/python/{standard[1]}"
        folder, _, base = path.replace("\\", "/").rpartition("/")
        first = path.split("/", 1)[0]
        if first in PUBLIC_PACKAGES or first == "_dynamo" or path.startswith("//"):
            return path
        if not folder:
            return self._file(base) if base in self._files or base.endswith(".py") else path
        if folder.startswith("/") or ":" in folder:
            return f"/user/{self._folder(folder)}/{self._file(base)}"
        return self._file(base)  # a relative path in a guard's comment: shared/cases/train.py

    def value(self, value: Any, key: str = "") -> Any:
        """Rewrite decoded JSON. Keys stay, for they are the format; under ``sizes`` they are names of the user's tensors."""
        if isinstance(value, str):
            if key in _SOURCE_KEYS and "source" in self.hide:
                return REMOVED if value else value
            if key in _HOST_KEYS and "hosts" in self.hide:
                return "host1"
            return self.text(value)
        if isinstance(value, list):
            if key in _ARGUMENT_KEYS and "paths" in self.hide:
                return [self.path(item) if item.endswith(".py") else REMOVED for item in map(str, value)]
            return [self.value(item, key) for item in value]
        if isinstance(value, dict):
            return {self.text(k) if key == "sizes" else k: self.value(item, k) for k, item in value.items()}
        return value

    def _rename(self, text: str) -> str:
        if "names" not in self.hide or not self._names or not text:
            return text
        if self._name_pattern is None:
            names = "|".join(sorted(map(re.escape, self._names), key=len, reverse=True))
            # An underscore counts as a border: graphs spell L['self'].scale as l_self_scale. A keyword argument belongs to
            # the called function, and renamed it would make the graph one that no longer runs. What lies in torch itself
            # (torch.nn.parallel) keeps its name, like its path; torch.ops and torch.classes hold what the user registered.
            self._name_pattern = re.compile(
                rf"(?P<keep>(?<=[(,] )\w+(?= = )|(?<=\()\w+(?= = )|(?<![\w.])torch(?!\.(?:ops|classes|_ops|_classes)\b)(?:\.\w+)+)"
                rf"|(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])"
            )
        return self._name_pattern.sub(lambda m: m[0] if m["keep"] else self._names[m[0]], text)

    def _file(self, path: str) -> str:
        base = base_name(path)
        if base not in self._files:
            suffix = base[base.rfind(".") :] if "." in base[1:] else ""
            self._files[base] = f"file{len(self._files) + 1}{suffix if len(suffix) < 6 else ''}"
        return self._files[base]

    def _folder(self, folder: str) -> str:
        return self._folders.setdefault(folder, f"folder{len(self._folders) + 1}")


def _callable_names() -> frozenset[str]:
    from fxscope.graph.callables import allowed_names

    return allowed_names()
