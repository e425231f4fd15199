"""Presets: each number has a source; bad files give one line."""

import msgspec
import pytest

from fxscope.errors import UnreadableError, UsageError
from fxscope.targets.npu import machine as machines


@pytest.mark.parametrize("name", machines.names())
def test_every_number_of_a_preset_has_a_source(name):
    data = msgspec.to_builtins(machines.load(name))
    sources = data.pop("sources")
    numbers = {key for key, value in data.items() if isinstance(value, int | float)}
    for table, values in data.items():
        if isinstance(values, dict):
            numbers |= {f"{table}.{key}" for key in values}
    assert set(sources) == numbers
    assert data["name"] == name
    assert all(len(text) > 3 for text in sources.values())


def test_presets():
    assert machines.names() == ["ethos-u65-512", "gemmini-16x16", "tpu-v1-256x256"]
    assert machines.DEFAULT in machines.names()


def test_unknown_preset_is_one_line():
    with pytest.raises(UsageError, match="unknown machine 'gemini'; presets: ethos") as caught:
        machines.load("gemini")
    assert "\n" not in str(caught.value)


def changed(tmp_path, old, new):
    text = (machines.HERE / "machine_gemmini-16x16.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("rows = 16", "rows = ", "no TOML"),
        ("rows = 16", "rows = 0", "array.rows and array.cols lie in 1 to 4096"),
        ("rows = 16", 'rows = "many"', r"Expected `int`, got `str` - at `\$.array.rows`"),
        ("rows = 16", "rows = 16\nspeed = 3", "unknown field `speed`"),
        ("rows = 16\n", "", "missing required field `rows`"),
        ('dataflow = "ws"', 'dataflow = "rs"', "Invalid enum value 'rs'"),
        ("line_bytes = 64", "line_bytes = 48", "line_bytes is 16, 32, 64, 128 or 256"),
        ("scratchpad = 262144", "scratchpad = 64", "scratchpad holds 16"),
        ("tokens = 8", "tokens = 0", "queues are at least 1 deep"),
        ("transcendental = ", "transcendental = -", "vector.transcendental are positive"),
        ("read_latency = ", "read_latency = -", "latencies and host.launch_cycles are not negative"),
    ],
)
def test_bad_machine_files(tmp_path, old, new, message):
    with pytest.raises(UnreadableError, match=message) as caught:
        machines.load(changed(tmp_path, old, new))
    assert "\n" not in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_own_machine(tmp_path):
    machine = machines.load(changed(tmp_path, "rows = 16", "rows = 8"))
    assert machine.array.rows == 8
    with pytest.raises(UsageError, match="No such file"):
        machines.load(tmp_path / "none.toml")


def test_what_if_changes_one_number():
    base = machines.load("gemmini-16x16")
    other = machines.with_values(base, {"array.rows": 32})
    assert (other.array.rows, other.array.cols, base.array.rows) == (32, 16, 16)
    assert other.sources["array.rows"] == "what-if"
    with pytest.raises(UsageError, match=r"no number 'array.size'"):
        machines.with_values(base, {"array.size": 1})
