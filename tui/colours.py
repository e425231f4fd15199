"""The colours of span styles, made once per theme from its variables.

Textual's component classes would give the same, but cost a style-sheet match per style and widget: with 20 styles on a dozen
widgets that is most of the time of opening the app.
"""

from __future__ import annotations

from rich.style import Style
from textual.app import App
from textual.color import Color
from textual.theme import Theme

_TEXT = {
    "good": "text-success",
    "warn": "text-warning",
    "bad": "text-error",
    "info": "text-primary",
    "accent": "text-accent",
    "keyword": "text-primary",
    "string": "text-success",
    "number": "text-warning",
    "name": "text-secondary",
    "type": "text-accent",
}
_BOLD = {"accent", "keyword"}


def span_styles(app: App[object]) -> dict[str, Style]:
    """Rich styles by the names of ``spans.STYLES``, and ``head``, ``cursor`` and ``focused`` for whole lines."""
    theme = app.current_theme
    made = _MADE.get(theme.name)
    if made is None or made[0] is not theme:
        made = _MADE[theme.name] = (theme, _of_theme(theme))
    return made[1]


_MADE: dict[str, tuple[Theme, dict[str, Style]]] = {}


def _of_theme(theme: Theme) -> dict[str, Style]:
    variables = theme.to_color_system().generate()
    styles = _terminal_colours(variables) if variables["foreground"].startswith("ansi") else _true_colours(variables)
    styles["strong"] = Style(bold=True)
    return styles


def _true_colours(variables: dict[str, str]) -> dict[str, Style]:
    parsed = {
        name: Color.parse(variables[name]) for name in ("background", "foreground", "surface", "surface-lighten-1")
    }
    background = parsed["background"]
    over = {name: Color.parse(variables[name]) for name in ("primary", "success", "warning", "error")}

    def mix(name: str, share: float) -> Style:
        return Style(bgcolor=background.blend(over[name], share).rich_color)

    styles = {
        name: Style(color=Color.parse(variables[variable]).rich_color, bold=name in _BOLD or None)
        for name, variable in _TEXT.items()
    }
    muted = background.blend(parsed["foreground"], 0.6).rich_color
    styles["dim"] = Style(color=muted)
    styles["comment"] = Style(color=muted, italic=True)
    styles["head"] = Style(color=muted, bold=True, bgcolor=parsed["surface"].rich_color)
    styles["match"] = mix("warning", 0.4) + Style(underline=True)
    styles["added"] = styles["good"] + mix("success", 0.15)
    styles["removed"] = styles["bad"] + mix("error", 0.15)
    styles["cursor"] = Style(bgcolor=parsed["surface-lighten-1"].rich_color)
    styles["focused"] = mix("primary", 0.35)
    return styles


def _terminal_colours(variables: dict[str, str]) -> dict[str, Style]:
    """For themes that leave colours to the terminal: its 16 colours and attributes, never a background of our own."""
    styles = {
        name: Style(color=variables[variable].removeprefix("ansi_"), bold=name in _BOLD or None)
        for name, variable in _TEXT.items()
    }
    styles["dim"] = styles["comment"] = Style(dim=True)
    styles["head"] = Style(dim=True, bold=True)
    styles["match"] = Style(reverse=True, underline=True)
    styles["added"] = styles["good"]
    styles["removed"] = styles["bad"]
    styles["cursor"] = Style(underline=True)
    styles["focused"] = Style(reverse=True)
    return styles
