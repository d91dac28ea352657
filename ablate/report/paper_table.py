r"""The results table of a study as papers print it: a LaTeX table to use unedited.

It needs the packages booktabs and threeparttable. Decimals are aligned without a further
package: all computed numbers of a column have the same number of decimals, and a star
takes no width.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ablate.errors import AblateError, UnknownName, unknown
from ablate.records import Metric, StudyResults, level_text
from ablate.records.primary import primary_is_elsewhere
from ablate.report.best_rows import Bold, bold_rows
from ablate.report.effect import Effect
from ablate.report.effects import effects
from ablate.report.numbers import fixed
from ablate.report.results_table import (
    STAR_NOTE,
    comparisons,
    summarised,
    test_words,
    tuned_names,
)
from ablate.report.summary import COST_HEADINGS, Row
from ablate.report.table import Column
from ablate.report.units import Unit, cost_units
from ablate.report.verdicts import Verdict
from ablate.report.wording import exploratory, extra_note, reported_notes, tuning_note
from ablate.statistics.numbers import mean_of, sd_of
from ablate.text import escape

# The names of columns beside factors, the metric and costs.
ROW, DELTA, GAIN, SEEDS, PUBLISHED = "row", "delta", "gain", "n", "published"
# The most decimals of a cost.
MOST_DECIMALS = 3


@dataclass(frozen=True)
class PaperStyle:
    """How a table looks in a paper.

    Attributes:
        labels: LaTeX by column (`shortcuts.count`, `top1`, `params`, ...) or level
            (`ffn.kernel:none`).
        columns: the columns, in order; by default those whose rows differ.
        caption: LaTeX; by default the question of the study.
        label: for `\\ref`; by default `tab:` and the name of the study.
        group: a factor; rows with the same level of it stand together.
        wide: whether the table spans both columns of a page (`table*`).
        bold: which means are bold. decided: the best one, with all that are not
            significantly worse, unless these are all; best: the best one; none.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    caption: str = ""
    label: str = ""
    group: str = ""
    wide: bool = False
    bold: Bold = "decided"


def paper_table(
    results: StudyResults,
    style: PaperStyle,
    *,
    published: Mapping[int, float] | None = None,
    policy: str = "last epoch, test set",
    others: Mapping[str, Mapping[int, Sequence[float]]] | None = None,
) -> str:
    """Returns a LaTeX table with caption, label and notes, ending with a line feed.

    Args:
        published: values of the metric from a paper, by row.
        policy: as for `results_table`.
        others: values of other metrics over the seeds of each row, by metric and row.

    Raises:
        UnknownName: a column or a label is unknown.
    """
    table = _PaperTable(results, style, published, policy, others or {})
    return "\n".join(table.lines()) + "\n"


class _PaperTable:
    """A table under construction."""

    def __init__(
        self,
        results: StudyResults,
        style: PaperStyle,
        published: Mapping[int, float] | None,
        policy: str,
        others: Mapping[str, Mapping[int, Sequence[float]]],
    ) -> None:
        self._results = results
        self._called = results.labels
        # Columns with a level in each row: factors, and hyperparameters that rows chose.
        self._with_levels = (*results.factors, *tuned_names(results))
        self._style = style
        self._published = published
        self._policy = policy
        self._values_of = others
        self._others = {
            self._own(metric.name): metric
            for metric in results.metrics
            if metric.name in others
        }
        row_effects = effects(results, 1.0)
        self._effects = {effect.row: effect for effect in row_effects}
        self._rows = self._ordered(summarised(results, row_effects))
        self._best = bold_rows(results, row_effects, style.bold)
        self._units = cost_units((row.cost for row in self._rows), COST_HEADINGS)
        self._digits = results.metric.digits
        self._refuse_unknown_labels()

    def _ordered(self, rows: Iterable[Row]) -> list[Row]:
        """Returns the rows that are printed, those of a group together."""
        folded = {
            cell.index for cell in self._results.cells if cell.same_as is not None
        }
        shown = [
            replace(row, levels={**row.levels, **row.chosen})
            for row in rows
            if row.index not in folded
        ]
        group = self._style.group
        if not group:
            return shown
        if group not in self._results.factors:
            raise UnknownName(unknown("factor", group, self._results.factors))
        first: dict[object, int] = {}
        for row in shown:
            first.setdefault(row.levels.get(group), len(first))
        return sorted(shown, key=lambda row: first[row.levels.get(group)])

    def _refuse_unknown_labels(self) -> None:
        """Raises UnknownName for a label of nothing."""
        columns = [*self._names()]
        for factor in self._with_levels:
            levels = {level_text(row.levels.get(factor)) for row in self._rows}
            columns += [f"{factor}:{level}" for level in sorted(levels)]
        for name in self._style.labels:
            if name not in columns:
                raise UnknownName(unknown("label", name, columns))

    def _names(self) -> list[str]:
        """Returns the names of all columns that the table could have."""
        names = [ROW, *self._with_levels, self._metric, self._special(DELTA)]
        if self._has_controls:
            names.append(self._special(GAIN))
        names += [*self._others, SEEDS, *self._units]
        if self._published is not None:
            names.append(self._special(PUBLISHED))
        return names

    def _own(self, name: str) -> str:
        """Returns the name of a column that is not a factor's.

        A user's training may have a factor of the same name.
        """
        return f"{name}_" if name in self._with_levels else name

    def _special(self, name: str) -> str:
        """Returns the name of a column that is neither a factor's nor a metric's."""
        taken = {*self._with_levels, *self._others, self._metric}
        return f"{name}_" if name in taken else name

    @property
    def _metric(self) -> str:
        return self._own(self._results.metric.name)

    @property
    def _has_controls(self) -> bool:
        return any(row.control is not None for row in self._rows)

    def _chosen(self) -> Sequence[str]:
        """Returns the names of the columns that are printed."""
        names = self._names()
        for name in self._style.columns:
            if name not in names:
                raise UnknownName(unknown("column", name, names))
        if self._style.columns:
            return self._style.columns
        left_out = set()
        # Notes name rows by their number.
        if not any(row.note for row in self._rows):
            left_out.add(ROW)
        for factor in self._with_levels:
            if len({row.levels.get(factor) for row in self._rows}) < 2:
                left_out.add(factor)
        if self._number_of_seeds() is not None:
            left_out.add(SEEDS)
        left_out |= self._others.keys()
        return [name for name in names if name not in left_out]

    def _number_of_seeds(self) -> int | None:
        """Returns the number of seeds of all rows; None if it differs."""
        numbers = {row.n for row in self._rows}
        return numbers.pop() if len(numbers) == 1 else None

    def lines(self) -> list[str]:
        """Returns the lines of the table."""
        columns = [self._column(name) for name in self._chosen()]
        style = self._style
        name = _key_of(self._results.name)
        usual = self._results.question.strip() or self._results.name
        caption = style.caption or escape.latex(usual)
        environment = "table*" if style.wide else "table"
        aligns = "".join("r" if column.right else "l" for column in columns)
        return [
            r"% \usepackage{booktabs,threeparttable}",
            rf"\begin{{{environment}}}[t]",
            r"  \centering",
            rf"  \caption{{{caption}}}",
            rf"  \label{{{style.label or f'tab:{name}'}}}",
            r"  \begin{threeparttable}",
            rf"    \begin{{tabular}}{{@{{}}{aligns}@{{}}}}",
            r"      \toprule",
            f"      {' & '.join(column.heading for column in columns)} \\\\",
            r"      \midrule",
            *self._body(columns),
            r"      \bottomrule",
            r"    \end{tabular}",
            r"    \begin{tablenotes}[flushleft]",
            r"      \footnotesize",
            *[rf"      \item {note}" for note in self._notes()],
            r"    \end{tablenotes}",
            r"  \end{threeparttable}",
            rf"\end{{{environment}}}",
        ]

    def _body(self, columns: Sequence[Column[Row]]) -> list[str]:
        group = self._style.group
        lines = []
        level = self._rows[0].levels.get(group) if self._rows else None
        for row in self._rows:
            if row.levels.get(group) != level:
                lines.append(r"      \midrule")
                level = row.levels.get(group)
            texts = [column.text_of(row) for column in columns]
            lines.append(f"      {' & '.join(texts)} \\\\")
        return lines

    def _heading(self, name: str, usual: str) -> str:
        return _shielded(self._style.labels.get(name, usual))

    def _column(self, name: str) -> Column[Row]:
        metric = self._results.metric
        if name in self._with_levels:
            words = re.sub(r"[._]", " ", name)
            heading = self._heading(name, escape.latex(self._called.get(name, words)))
            return Column(heading=heading, text=lambda row: self._level(name, row))
        if name in self._units:
            unit = self._units[name]
            usual = f"{COST_HEADINGS[name]} ({unit.letter})"
            decimals = self._decimals(name, unit)
            return Column(
                heading=self._heading(name, usual),
                text=lambda row: _cost(row, name, unit, decimals),
                right=True,
            )
        if name in self._others:
            other = self._others[name]
            heading = self._heading(name, escape.latex(other.title))
            return Column(
                heading=heading,
                text=lambda row: self._other_mean(other, row),
                right=True,
            )
        plain: dict[str, tuple[str, Callable[[Row], str]]] = {
            ROW: ("row", lambda row: str(row.index)),
            self._metric: (escape.latex(metric.title), self._mean),
            self._special(DELTA): (r"$\Delta$", self._difference),
            self._special(GAIN): (r"$\Delta$ control", self._gain),
            SEEDS: ("$n$", lambda row: str(row.n or "")),
            self._special(PUBLISHED): ("published", self._printed),
        }
        usual, text = plain[name]
        return Column(heading=self._heading(name, usual), text=text, right=True)

    def _level(self, factor: str, row: Row) -> str:
        text = level_text(row.levels.get(factor))
        called = self._called.get(f"{factor}:{text}", text)
        usual = "--" if called == "-" else escape.latex(called)
        return _shielded(self._style.labels.get(f"{factor}:{text}", usual))

    def _mean(self, row: Row) -> str:
        if row.mean is None:
            return "--"
        text = _number(row.mean, self._digits)
        if row.sd is not None:
            text += rf" \pm {self._sd(row.sd)}"
        if row.index in self._best:
            return rf"$\mathbf{{{text}}}$"
        return f"${text}$"

    def _other_mean(self, metric: Metric, row: Row) -> str:
        """Returns the mean of another metric, without bold: it has no verdicts."""
        values = self._values_of[metric.name].get(row.index, ())
        # An older trial may lack a metric that was added later.
        if not values or len(values) != row.n:
            return "--"
        text = _number(mean_of(values), metric.digits)
        if len(values) > 1:
            text += rf" \pm {_number(sd_of(values), metric.digits)}"
        return f"${text}$"

    def _sd(self, sd: float) -> str:
        """Returns a standard deviation, padded to the width of the largest one."""
        text = _number(sd, self._digits)
        widest = max(
            len(_number(row.sd, self._digits))
            for row in self._rows
            if row.sd is not None
        )
        missing = widest - len(text)
        return rf"\phantom{{{'0' * missing}}}{text}" if missing else text

    def _difference(self, row: Row) -> str:
        if row.delta is None:
            return "ref." if row.role == "reference" else "--"
        text = f"${_number(row.delta, self._digits, signed=True)}$"
        if _is_decided(self._effects.get(row.index)):
            text += r"\rlap{$^{*}$}"
        return text

    def _gain(self, row: Row) -> str:
        if row.gain is None:
            return "--"
        text = _number(row.gain, self._digits, signed=True)
        if row.gain_sd is not None:
            text += rf" \pm {_number(row.gain_sd, self._digits)}"
        return f"${text}$"

    def _printed(self, row: Row) -> str:
        value = (self._published or {}).get(row.index)
        return "--" if value is None else f"{value:g}"

    def _decimals(self, name: str, unit: Unit) -> int:
        """Returns the decimals that show the smallest difference of a cost."""
        values = sorted({getattr(row.cost, name) for row in self._rows if row.cost})
        gaps = [high - low for low, high in itertools.pairwise(values)]
        if not gaps:
            return 1
        smallest = min(gaps) / unit.size
        return max(1, min(MOST_DECIMALS, -math.floor(math.log10(smallest))))

    def _notes(self) -> list[str]:
        """Returns what the numbers mean, in LaTeX."""
        seeds = self._number_of_seeds()
        over = f"{seeds} seeds" if seeds else "$n$ seeds"
        if seeds == 1:
            over = "one seed"
        metric = escape.latex(self._results.metric.title)
        chosen = self._chosen()
        sentences = [
            rf"{metric}: mean $\pm$ standard deviation over {over},"
            f" {escape.latex(self._policy)}."
        ]
        if self._special(DELTA) in chosen:
            stars = STAR_NOTE.removeprefix("* ").replace("<", "$<$")
            stars = stars.replace("%", r"\%")
            words = test_words(self._results, comparisons(self._effects.values()))
            pairing = "paired by seed" if self._results.is_paired else "unpaired"
            sentences.append(
                rf"$\Delta$: mean difference from the reference (ref.), {pairing};"
                rf" $^{{*}}$ {stars} ({words})."
            )
            sentences += map(escape.latex, tuning_note(self._results, remedy=False))
            sentences += map(escape.latex, extra_note([*self._effects.values()]))
        if self._has_controls and self._special(GAIN) in chosen:
            sentences.append(
                r"$\Delta$ control: mean difference from the baseline at the width"
                " whose cost is nearest."
            )
        if self._metric in chosen and self._best:
            sentences.append(self._bold_note())
        elif self._metric in chosen and self._style.bold == "decided" and seeds != 1:
            sentences.append(
                "No mean is bold: none is significantly worse than the best one"
                r" (5\,\%)."
            )
        if self._others.keys() & set(chosen):
            sentences.append("Other metrics: the same seeds, not tested.")
        if "flops" in chosen:
            sentences.append("FLOPs: executed multiply-adds of one image.")
        primary = self._results.primary
        if primary_is_elsewhere(primary):
            sentences.append(escape.latex(exploratory(primary, "stars")))
        sentences += map(escape.latex, reported_notes(self._results))
        return [" ".join(sentences), *self._missing()]

    def _bold_note(self) -> str:
        """Returns what bold means."""
        words = "Bold: the best mean"
        if self._style.bold == "decided":
            words += (
                ", and the next ones down to the first that is significantly worse"
                r" (5\,\%)"
            )
        if self._has_controls:
            words += ", controls aside"
        return f"{words}."

    def _missing(self) -> list[str]:
        """Returns notes on rows that lack results."""
        return [
            f"Row {row.index}: {escape.latex(row.note)}."
            for row in self._rows
            if row.note
        ]


def _shielded(text: str) -> str:
    """Returns LaTeX that can begin a row: `\\\\` would read a bracket or a star."""
    if text.startswith(("[", "*")):
        return "{}" + text
    return text


def _key_of(name: str) -> str:
    """Returns a key for references; other names have other keys."""
    key = re.sub(r"[^A-Za-z0-9/._-]+", "-", name)
    if name.isascii():
        return key
    return f"{key}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _is_decided(effect: Effect | None) -> bool:
    return effect is not None and effect.verdict in (Verdict.HELPS, Verdict.HURTS)


def _cost(row: Row, name: str, unit: Unit, decimals: int) -> str:
    value = getattr(row.cost, name) if row.cost is not None else 0
    if not value:
        return "--"
    text = _number(value / unit.size, decimals)
    return text if float(text) else f"{value / unit.size:.1g}"


def labels_of(words: Iterable[str]) -> dict[str, str]:
    """Returns labels by name, from words such as `ffn.kernel=Kernel`.

    That of a level is written `ffn.kernel:none=--`.

    Raises:
        AblateError: a word has no equals sign, or nothing on one side of it.
    """
    labels: dict[str, str] = {}
    for word in words:
        name, _, label = word.partition("=")
        if not name or not label:
            raise AblateError(
                f"'{word}' is not a label; write COLUMN=LABEL or COLUMN:LEVEL=LABEL, as"
                " in 'ffn.kernel=Depthwise kernel' 'ffn.kernel:none=--'"
            )
        labels[name] = label
    return labels


def _number(value: float, digits: int, *, signed: bool = False) -> str:
    """Returns a number for a formula; a long one as 1.8 times a power of ten."""
    mantissa, _, exponent = fixed(value, digits, signed=signed).partition("e+")
    if not exponent:
        return mantissa
    return rf"{mantissa} \times 10^{{{int(exponent)}}}"
