"""Every key of the app in one table: bindings, footer, help and palette are made from it, and users can remap it.

``$XDG_CONFIG_HOME/fxscope/keys.toml`` (or ``~/.config/fxscope/keys.toml``) maps ids to keys::

    [keys]
    "app.quit" = "ctrl+q"
    "graph.stage" = "s,f3"
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

from textual.binding import Binding, BindingType

from fxscope.errors import UsageError


class Key(NamedTuple):
    """One action.

    Attributes:
        id: ``scope.name``; stable, users remap by it.
        keys: Textual key names, comma-separated.
        action: Textual action string.
        label: One or two words, for the footer.
        description: A sentence, for help and palette.
        footer: Rank in the footer (smaller is further left); 0 keeps it out.
    """

    id: str
    keys: str
    action: str
    label: str
    description: str
    footer: int = 0

    @property
    def scope(self) -> str:
        """``app``, ``lines`` or the name of a view."""
        return self.id.split(".", 1)[0]


VIEWS = (
    "overview",
    "graph",
    "guards",
    "breaks",
    "recompiles",
    "passes",
    "kernels",
    "code",
    "timeline",
    "output",
)  # in the order of the digits 1 to 9 and 0

_VIEW_KEYS = tuple(
    Key(f"app.view_{name}", str((number + 1) % 10), f"app.view('{name}')", name, f"Show the {name.capitalize()} view.")
    for number, name in enumerate(VIEWS)
)

KEYS: tuple[Key, ...] = (
    Key("app.help", "question_mark,f1", "app.help", "help", "Keys and terms of the view in focus.", 99),
    Key("app.palette", "colon,ctrl+p", "app.palette", "actions", "Every action by name; type to find one.", 98),
    Key(
        "app.filter",
        "slash",
        "app.filter",
        "filter",
        "Filter a list or search a text; ! inverts, type: and the like name a column.",
        60,
    ),
    Key("app.next_match", "n", "app.next_match(1)", "next match", "Go to the next match."),
    Key("app.previous_match", "N", "app.next_match(-1)", "previous match", "Go to the match before."),
    Key("app.back", "escape", "app.back", "back", "Clear the filter, or go back to where you came from."),
    Key("app.copy", "y", "app.copy", "copy", "Copy the line under the cursor.", 70),
    Key("app.copy_all", "Y", "app.copy_all", "copy all", "Copy everything that this pane shows."),
    Key("app.export", "e", "app.export", "export", "Write what is shown to a file: text, json, dot or svg.", 71),
    Key("app.editor", "o", "app.editor", "editor", "Open the source line in $EDITOR.", 72),
    Key("app.zoom", "z", "app.zoom", "zoom", "Give the pane in focus the whole screen, and back."),
    Key("app.tree", "t", "app.tree", "tree", "Show or fold away the tree of frames.", 80),
    Key("app.next_view", "right_square_bracket", "app.step_view(1)", "next view", "Go to the next view."),
    Key("app.previous_view", "left_square_bracket", "app.step_view(-1)", "previous view", "Go to the view before."),
    *_VIEW_KEYS,
    Key("app.next_compile", "right_curly_bracket", "app.step_compile(1)", "next compile", "Select the next compile."),
    Key(
        "app.previous_compile",
        "left_curly_bracket",
        "app.step_compile(-1)",
        "previous compile",
        "Select the one before.",
    ),
    Key("app.rank", "R", "app.rank", "rank", "Next rank, after the last all ranks again."),
    Key("app.pause", "p", "app.pause", "pause", "Hold the views still while events are still taken in."),
    Key("app.theme", "T", "app.theme", "theme", "Choose a colour theme."),
    Key("app.interrupt", "ctrl+c", "app.interrupt", "interrupt", "Send Ctrl-C to the program while it runs."),
    Key("app.quit", "q,ctrl+q", "app.quit", "quit", "Leave; asks while the program still runs.", 97),
    Key("lines.up", "up,k", "move(-1)", "up", "One line up."),
    Key("lines.down", "down,j", "move(1)", "down", "One line down."),
    Key("lines.page_up", "pageup,ctrl+b", "page(-1)", "page up", "One page up."),
    Key("lines.page_down", "pagedown,ctrl+f,space", "page(1)", "page down", "One page down."),
    Key("lines.half_up", "ctrl+u", "page(-0.5)", "half page up", "Half a page up."),
    Key("lines.half_down", "ctrl+d", "page(0.5)", "half page down", "Half a page down."),
    Key("lines.top", "g,home", "top", "top", "The first line."),
    Key("lines.bottom", "G,end", "bottom", "bottom", "The last line; a live list then follows its tail."),
    Key("lines.left", "left,h", "sideways(-8)", "left", "Scroll to the left; in a tree, fold."),
    Key("lines.right", "right,l", "sideways(8)", "right", "Scroll to the right; in a tree, unfold."),
    Key("lines.choose", "enter", "choose", "open", "Open what is under the cursor."),
    Key("tree.toggle", "space", "fold", "fold", "Fold or unfold.", 20),
    Key("overview.open", "enter", "choose", "open", "Go to what the finding is about.", 10),
    Key(
        "overview.verify",
        "v",
        "view.verify",
        "verify",
        "Run the command that tries the fix (fxscope try), after asking.",
        11,
    ),
    Key("overview.cancel", "x", "view.cancel", "cancel", "Cancel the check that runs."),
    Key("graph.jump", "enter", "choose", "inputs & users", "List the inputs and users of this node, and jump.", 10),
    Key("graph.stage", "s", "view.stage(1)", "stage", "Next stage: dynamo, joint, forward, backward, post_grad.", 11),
    Key("graph.stage_back", "S", "view.stage(-1)", "stage back", "The stage before."),
    Key(
        "graph.collapse",
        "c",
        "view.collapse",
        "collapse",
        "Collapse the nodes of each nn.Module into one row, or back.",
        12,
    ),
    Key("graph.compare", "d", "view.compare", "compare", "Compare with another graph, side by side.", 13),
    Key("graph.histogram", "b", "view.histogram", "ops", "Count the ops.", 14),
    Key("graph.input", "i", "view.to_input", "to input", "Jump to the first input of this node."),
    Key("graph.user", "u", "view.to_user", "to user", "Jump to the next user of this node."),
    Key("graph.kernel", "K", "view.kernel", "kernel", "Go to the generated kernel that computes this node."),
    Key("graph.source", "w", "view.source", "source", "Show or hide the source beside the graph."),
    Key("guards.failed", "f", "view.failed", "failed only", "Only the guards that failed and led to a recompile.", 10),
    Key("guards.types", "b", "view.types", "types", "Count the guards by type; enter filters by one.", 11),
    Key("breaks.open", "enter", "choose", "graphs", "Go to the graph that this break ended.", 10),
    Key("recompiles.open", "enter", "choose", "guards", "Go to the guards of the entry that did not match.", 10),
    Key("code.which", "s", "view.stage(1)", "text", "Choose the text: forward, backward, bytecode, ...", 10),
    Key("code.which_back", "S", "view.stage(-1)", "text back", "The text before."),
    Key("code.compare", "d", "view.compare", "compare", "Compare with another text, side by side.", 12),
    Key("code.jump", "enter", "choose", "to node", "From a kernel to its graph node, where provenance is known.", 11),
    Key("timeline.open", "enter", "choose", "compile", "Select the compile under the cursor.", 10),
    Key("output.type", "i", "view.type", "type", "Type a line to the program.", 10),
    Key("output.eof", "ctrl+d", "view.eof", "end of input", "Send Ctrl-D (end of input) to the program."),
    Key("passes.forward", "right,l", "view.step(1)", "step", "One step forward.", 10),
    Key("passes.back", "left,h", "view.step(-1)", "step back", "One step back.", 11),
    Key("passes.run", "r", "view.run", "run", "Run the pipeline on the selected graph.", 12),
    Key("passes.pipeline", "s", "view.pipeline", "pipeline", "Choose the passes and their order.", 13),
    Key("passes.stage", "S", "view.stage", "stage", "Choose the stage: dynamo, joint, forward, backward, ..."),
    Key("passes.single", "a", "view.single", "applications", "One step per application, or one per pass."),
    Key("passes.inference", "I", "view.inference", "inference", "Promise that no gradient is needed, or take it back."),
    Key("passes.cancel", "x", "view.cancel", "cancel", "Cancel what runs."),
    Key("kernels.run", "r", "view.run", "run", "Measure the selected graph under the chosen executors.", 10),
    Key("kernels.executors", "s", "view.executors", "executors", "Choose the executors.", 11),
    Key("kernels.stage", "S", "view.stage", "stage", "Choose the stage: dynamo, joint, forward, backward, ..."),
    Key("kernels.island", "i", "view.island", "island", "Measure only one island of the last executor's target."),
    Key("kernels.npu", "u", "view.npu", "NPU report", "What each op costs on the NPU, and when: modelled.", 12),
    Key("kernels.sweep", "w", "view.sweep", "sweep", "Also time a sweep over sizes."),
    Key("kernels.cancel", "x", "view.cancel", "cancel", "Cancel what runs."),
    Key("kernels.source", "enter", "choose", "source", "Show the source that an executor runs.", 13),
)

_NAMES = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "left": "\u2190",
    "right": "\u2192",
    "up": "\u2191",
    "down": "\u2193",
}


WIDGET_SCOPES = ("lines", "tree")


def bindings(*scopes: str) -> list[BindingType]:
    """Textual bindings of some scopes. Ctrl-C goes before whatever has the focus: it belongs to the program."""
    return [
        Binding(
            key.keys,
            action(key),
            key.label,
            tooltip=key.description,
            id=key.id,
            show=False,
            priority=key.id == "app.interrupt",
        )
        for key in KEYS
        if key.scope in scopes and not (key.action == "choose" and key.scope != "lines")
    ]


def action(key: Key) -> str:
    """The Textual action of a key. ``view.stage(1)`` asks the view that is shown: ``app.ask('graph', 'stage', 1)``."""
    name, dot, rest = key.action.partition(".")
    if not dot or name != "view":
        return key.action
    what, _, arguments = rest.rstrip(")").partition("(")
    return f"app.ask({key.scope!r}, {what!r}{', ' + arguments if arguments else ''})"


def display(keys: str) -> str:
    """Keys as they are written on the screen: ``up,k`` gives ``up k``."""
    return " ".join(_NAMES.get(key, key.replace("ctrl+", "^")) for key in keys.split(","))


def for_view(view: str, remapped: dict[str, str], *, tree: bool = False) -> list[Key]:
    """The keys that do something in a view, its own first, with the user's changes."""
    scopes = ["tree"] if tree else []
    order = [*scopes, view, "app", "lines"]
    found = [key for scope in order for key in KEYS if key.scope == scope]
    return [key._replace(keys=remapped.get(key.id, key.keys)) for key in found]


def footer(view: str, remapped: dict[str, str], *, tree: bool = False) -> list[Key]:
    """At most eight keys for the bottom line."""
    keys = sorted((key for key in for_view(view, remapped, tree=tree) if key.footer), key=lambda key: key.footer)
    own = [key for key in keys if key.scope != "app"][:4]
    rest = sorted((key for key in keys if key.scope == "app"), key=lambda key: -key.footer)[: 8 - len(own)]
    return own + sorted(rest, key=lambda key: key.footer)


def config_file() -> Path:
    """Where a user's own keys are looked for."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "fxscope" / "keys.toml"


def load_remapped(path: Path | None = None) -> dict[str, str]:
    """The user's own keys by id; empty where there is no file.

    Raises:
        UsageError: The file is no TOML in UTF-8, or names an id that does not exist.
    """
    path = path or config_file()
    try:
        raw = path.read_bytes()
    except OSError:
        return {}  # no file of one's own is the usual case
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        keys = tomllib.loads(raw.decode("utf-8")).get("keys", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}; mend it or move it away") from None
    if not isinstance(keys, dict):
        raise UsageError(f"{path}: `keys` must be a table of ids and keys; mend it or move it away")
    known = {key.id for key in KEYS}
    for name, value in keys.items():
        if name not in known:
            raise UsageError(f"{path}: no action '{name}'; `?` in the app lists the ids")
        if not isinstance(value, str):
            raise UsageError(f"{path}: the keys of '{name}' must be a string such as \"s,f3\"")
    return dict(keys)
