"""Levels that are typed in a command mean what they mean in a space."""

from __future__ import annotations

import pytest

from ablate.errors import AblateError
from ablate.space.typed import levels_of, pairs_of, parts_of


def test_levels_are_those_of_yaml_1_2() -> None:
    parts = parts_of("lr=1e-3,a.b=on,c=true,d=0.5,e=rms,f=-2,g='3'")
    levels = levels_of(parts, "--set")
    assert levels == {
        "lr": 0.001,
        "a.b": "on",
        "c": True,
        "d": 0.5,
        "e": "rms",
        "f": -2,
        "g": "3",
    }
    assert [type(level) for level in levels.values()] == [
        *(float, str, bool, float, str, int, str)
    ]


def test_a_level_may_have_a_comma() -> None:
    assert pairs_of(parts_of("a=1,2,b=x"), "--by") == {"a": "1,2", "b": "x"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a", "write a name and its level"),
        ("=1", "write a name and its level"),
        ("a=", "a level is a number"),
        ("a=[1]", "a level is a number"),
        ("a={b: 1}", "a level is a number"),
        ("a=*x", "a level is a number"),
        ("a=!!python/name:os.system", "a level is a number"),
        ("a=1\nb: 2", "a level is a number"),
        ("a=1,a=2", "a has two levels"),
    ],
)
def test_what_is_no_level_is_refused(text: str, error: str) -> None:
    with pytest.raises(AblateError, match=error):
        levels_of(parts_of(text), "--set")
