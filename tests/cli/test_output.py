"""Tables in a terminal: whatever its width, no word and no number is lost."""

from __future__ import annotations

import io
import re
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.cli import main
from ablate.cli.output import show, use_plain_signs
from ablate.report.table import Table

WORDS = st.text("abcdefgh-0123456789", min_size=1, max_size=18)
TEXTS = st.lists(WORDS, max_size=6).map(" ".join)
NUMBERS = st.floats(-1e6, 1e6).map(lambda number: f"{number:.3f}")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252", "utf-8"])
def test_any_sign_can_be_printed(
    encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    use_plain_signs()
    show(Table(columns=["Δ"], rows=[["+1 ± 2 → 漢 \udcff"]], data=[]), "table")
    sys.stdout.flush()
    text = written.getvalue().decode(encoding)
    assert ("Δ" if encoding == "utf-8" else "delta") in text
    assert ("漢" if encoding == "utf-8" else r"\u6f22") in text


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(WORDS, min_size=1, max_size=9, unique=True))
    right = draw(st.sets(st.sampled_from(names)))
    kinds = [NUMBERS if name in right else TEXTS for name in names]
    rows = draw(st.lists(st.tuples(*kinds).map(list), max_size=4))
    return Table(columns=names, rows=rows, data=[], right=frozenset(right))


def lines(grid: Table, width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a terminal of that width shows."""
    written: list[str] = []
    with monkeypatch.context() as patched:
        patched.setenv("COLUMNS", str(width))
        patched.setenv("TERM", "xterm")
        patched.setattr(sys.stdout, "isatty", lambda: True)
        patched.setattr(sys.stdout, "write", written.append)
        show(grid, "table")
    return re.sub(r"\x1b\[[0-9;]*m", "", "".join(written)).splitlines()


@pytest.mark.proof
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(grid=tables(), width=st.integers(60, 200))
def test_nothing_is_cut_off(
    grid: Table, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = lines(grid, width, monkeypatch)
    assert all(len(line) <= width for line in shown)
    words = set(" ".join(shown).split())
    for text in (*grid.columns, *(cell for row in grid.rows for cell in row)):
        assert set(text.split()) <= words, text


def test_columns_continue_below_with_the_name_of_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["row", *(f"a-rather-long-factor-{number}" for number in range(4))]
    grid = Table(columns=names, rows=[["0", "1", "2", "3", "4"]], data=[])
    shown = lines(grid, 80, monkeypatch)
    heads = [line.split() for line in shown if "row" in line]
    assert heads == [["row", *names[1:3]], ["row", *names[3:5]]]
    wide = lines(grid, 140, monkeypatch)
    assert [line.split() for line in wide if "row" in line] == [names]


def test_two_columns_with_one_heading_keep_their_own_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = Table(
        columns=["row", "n", "top1", "n"], rows=[["0", "a", "75", "3"]], data=[]
    )
    shown = lines(grid, 80, monkeypatch)
    assert ["0", "a", "75", "3"] in [line.split() for line in shown]


def test_columns_that_continue_below_are_named_by_what_tells_rows_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    effects = [["main", "layout"], ["main", "kernel"]]
    values = [[str(number) * 20 for number in range(5)]] * 2
    rows = [[*name, *more] for name, more in zip(effects, values, strict=True)]
    names = ["effect", "factor", *"abcde"]
    shown = lines(Table(columns=names, rows=rows, data=[]), 80, monkeypatch)
    heads = [line.split()[:2] for line in shown if "effect" in line]
    assert heads == [["effect", "factor"]] * 3


def test_wide_columns_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "some words " * 8
    grid = Table(columns=["row", "a", "b"], rows=[["0", text, text]], data=[])
    shown = lines(grid, 100, monkeypatch)
    assert sum("words" in line for line in shown) <= 4


def test_a_very_narrow_terminal_shows_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid = Table(columns=["row", "top1"], rows=[["0", "75.31"]], data=[])
    assert "75.31" in " ".join(lines(grid, 3, monkeypatch))
    assert not "".join(lines(Table(columns=[], rows=[], data=[]), 80, monkeypatch))


def test_free_text_breaks_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    note = "a long remark " * 20
    grid = Table(columns=["row", "note"], rows=[["0", note]], data=[])
    shown = lines(grid, 80, monkeypatch)
    assert sum("row" in line for line in shown) == 1
    assert " ".join(shown).split().count("remark") == 20


def test_a_sentence_breaks_its_lines_where_there_is_room_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Outside a terminal there is room for everything; a reader needs short lines."""
    words = " ".join(["word"] * 60)
    grid = Table(
        columns=["finding", "what"],
        rows=[["one", words]],
        data=[],
        prose=frozenset({"what"}),
    )
    show(grid, form="table")
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) < 100
    assert out.count("word") == 60


def test_a_warning_shows_no_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "argv", ["ablate", "status", "--runs", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    warnings.showwarning("a sign is missing", UserWarning, "/source.py", 3)
    assert capsys.readouterr().err.endswith("warning: a sign is missing\n")
