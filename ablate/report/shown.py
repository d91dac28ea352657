"""Results that print as text and that a notebook shows as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ablate.report.effect import Effect
from ablate.report.table import Table, html


class ShownText(str):
    """A text, which a notebook shows as a table."""

    _html: str

    def __new__(cls, text: str, html_text: str) -> ShownText:
        made = super().__new__(cls, text)
        made._html = html_text
        return made

    def _repr_html_(self) -> str:
        return self._html


class ShownEffects(list[Effect]):
    """A list of effects, which a notebook shows as a table.

    Args:
        table: makes the table.
    """

    def __init__(self, effects: Iterable[Effect], table: Callable[[], Table]) -> None:
        super().__init__(effects)
        self._table = table

    def _repr_html_(self) -> str:
        return str(html(self._table()))
