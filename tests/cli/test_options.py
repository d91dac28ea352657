"""Options: what a value means."""

from __future__ import annotations

import pytest

from ablate.cli.options import inches


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("3.25", 3.25),
        ("3.25in", 3.25),
        (" 3.25 IN ", 3.25),
        ("8.255cm", 3.25),
        ("82.55mm", 3.25),
        ("234.8775pt", 3.25),
        (7.0, 7.0),
    ],
)
def test_a_width_may_have_a_unit(text: str | float, width: float) -> None:
    assert inches(text) == pytest.approx(width)
