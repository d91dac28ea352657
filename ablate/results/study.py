"""The results of a study, for Python."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import AblateError
from ablate.records import (
    RESOLVED,
    Cost,
    Epoch,
    Known,
    Space,
    StudyResults,
    column_of,
    level_text,
)
from ablate.records.stored import TriedSetting
from ablate.report.across import Size
from ablate.report.effect import Effect
from ablate.report.effects import control_effects, effects
from ablate.report.layer_means import Line, lines
from ablate.report.results_table import results_table
from ablate.report.shown import ShownEffects, ShownText
from ablate.report.summary import shown_levels
from ablate.report.table import Table, html, plain, render
from ablate.report.verdicts import Verdict
from ablate.report.wording import policy
from ablate.results.sizes import sizes_of
from ablate.scheduling.stored_space import declared_space
from ablate.store.reader import Reader
from ablate.text import escape
from ablate.text.advice import option

if TYPE_CHECKING:
    import pandas as pd

    from ablate.report.paper_table import PaperStyle
    from ablate.scheduling.strategies import Exported


@dataclass(frozen=True)
class Study:
    """The results of a study in a store, for Python.

    >>> study = ablate.run("search_spaces/quickstart.yaml")
    >>> print(study.table())

    Args:
        name: the name of the study.
        store: the URL of the store.
    """

    name: str
    store: str

    def results(self) -> StudyResults:
        """Returns all cells with their levels, costs, states and values."""
        with Reader(self.store) as reader:
            return reader.studies.results(self.name)

    def declared(self) -> Space:
        """Returns the space as it was last run."""
        return self.read()[1]

    def read(self) -> tuple[StudyResults, Space]:
        """Returns all cells, and the space as it was last run."""
        with Reader(self.store) as reader:
            results = reader.studies.results(self.name)
            declared = declared_space(reader.studies.get(self.name))
        return results, declared

    def sizes(self) -> list[Size]:
        """Returns all sizes of the ladder that has this name, or this study.

        Raises:
            AblateError: there is no such ladder.
        """
        with Reader(self.store) as reader:
            return sizes_of(self.name, reader)

    def measured_ahead(self, sizes: Sequence[Size]) -> list[Effect]:
        """Returns the effects at the predicted size; none before it is trained.

        Args:
            sizes: all other sizes of the ladder.
        """
        with Reader(self.store) as reader:
            study = reader.studies.predicted(sizes[0].across.ladder)
            if study is None:
                return []
            results = reader.studies.results(study.name)
        return effects(results, sizes[0].margin)

    @property
    def is_ladder(self) -> bool:
        """Whether this is the name of several sizes, and not that of a study."""
        with Reader(self.store) as reader:
            return bool(reader.studies.sizes(self.name))

    def _across(self, margin: float | None) -> Table:
        """Returns the effects of rows along all sizes."""
        from ablate.report.across_table import across_table

        sizes = self.sizes()
        least = sizes[0].margin if margin is None else margin
        return across_table(sizes, least, self.measured_ahead(sizes))

    def results_table(self, *, published: bool = False, group: str = "") -> Table:
        """Returns the study's table.

        Args:
            published: show the paper's top-1 in its own column.
            group: a factor; rows with the same level of it are grouped.
        """
        if self.is_ladder:
            for option_name, is_given in (
                ("published", published),
                ("group", bool(group)),
            ):
                if is_given:
                    raise AblateError(
                        f"{option(option_name)} is for one study, and {self.name} has"
                        " several sizes; name one of its studies"
                    )
            return self._across(None)
        results, declared = self.read()
        printed = self.published() if published else None
        return results_table(
            results,
            printed,
            policy=policy(declared),
            group=group,
        )

    def table(self, form: str = "md") -> str:
        """Returns the study's table. A notebook shows it as a table.

        Args:
            form: md, latex, html, csv or json.
        """
        if form == "latex" and not self.is_ladder:
            return self.paper_table()
        table = self.results_table()
        return ShownText(render(table, form), str(html(table)))

    def paper_table(
        self, style: PaperStyle | None = None, *, published: bool = False
    ) -> str:
        """Returns the study's table in LaTeX, to use in a paper as it is.

        Args:
            style: caption, label, columns and their labels.
            published: show the paper's top-1 in its own column.

        Raises:
            UnknownName: a column, a label or the group is unknown.
        """
        from ablate.report.paper_table import PaperStyle, paper_table

        results, declared = self.read()
        return paper_table(
            results,
            style or PaperStyle(),
            published=self.published() if published else None,
            policy=policy(declared),
            others=self._other_metrics(results),
        )

    def _other_metrics(
        self, results: StudyResults
    ) -> dict[str, dict[int, list[float]]]:
        """Returns the final values of all metrics but the one that is compared.

        They are by metric and row, over the seeds that count for the row.
        """
        seeds = {cell.index: cell.values.keys() for cell in results.cells}
        with Reader(self.store) as reader:
            trials = reader.trials.of(self.name)
        values_by_row: dict[str, dict[int, list[float]]] = {}
        for metric in results.metrics:
            if metric.name == results.metric.name:
                continue
            for trial in trials:
                value = trial.metrics.get(metric.name)
                if value is not None and trial.seed in seeds.get(trial.row, ()):
                    by_row = values_by_row.setdefault(metric.name, {})
                    by_row.setdefault(trial.row, []).append(value)
        return values_by_row

    def effects(self, margin: float | None = None) -> list[Effect]:
        """Returns the effect of each row compared with row 0.

        An effect is a paired difference with its interval, adjusted p values and
        verdict. A notebook shows the list as a table.

        Args:
            margin: the least difference that matters; by default the study's.
        """
        results, declared = self.read()
        least = declared.criterion.margin if margin is None else margin
        row_effects = effects(results, least)
        return ShownEffects(row_effects, lambda: self.effects_table(margin=margin))

    def effects_table(self, of: str = "rows", margin: float | None = None) -> Table:
        """Returns a table of effects, or of the importance of factors.

        Effects are those of rows, controls, factors, interactions or contributions, or
        those of rows on new images.

        Args:
            of: rows, controls, factors, interactions, contributions, importance,
                images, tuning or sizes. Of the name of several sizes: sizes.
            margin: least difference that matters; by default that of the space.

        Raises:
            AblateError: there are too few cells or seeds to estimate them.
        """
        from ablate.report import effects_table as tables

        if of == "sizes" or (of == "rows" and self.is_ladder):
            return self._across(margin)
        results, declared = self.read()
        least = declared.criterion.margin if margin is None else margin
        if of in ("importance", "images"):
            if margin is not None:
                raise AblateError(
                    f"{option('margin')} {margin:g} is for verdicts, and"
                    f" {option('of')} {of} prints none; leave {option('margin')} out"
                )
            if of == "images":
                return self._images(results, declared)
            return self._importance(results, declared)
        if of in ("tuning", "factors", "interactions", "contributions"):
            return self._beside_rows(of, least)
        if of == "controls":
            gains = control_effects(results, least, declared=bool(declared.control))
        else:
            gains = self.effects(least)
        if not gains:
            raise AblateError(f"{self.name} has {_missing(of, results)}")
        table = tables.effects_table(results, gains, least, controls=of == "controls")
        if of == "rows" and any(
            gain.verdict is Verdict.INCONCLUSIVE and not gain.withheld for gain in gains
        ):
            return replace(
                table, notes=[*table.notes, *self._last_epochs(results, declared)]
            )
        return table

    def _beside_rows(self, of: str, margin: float) -> Table:
        """Returns a table of effects that are not those of rows or controls."""
        from ablate.report import effects_table as tables

        results, declared = self.read()
        baseline = declared.factors.baseline
        if of == "tuning":
            from ablate.report.tuning_table import tuning_table

            return tuning_table(results, self.tried(results), margin)
        if of == "contributions":
            return tables.contributions_table(
                results, baseline, declared.factors.full, margin
            )
        return tables.factors_table(
            results, baseline, margin, interactions=of == "interactions"
        )

    def tried(self, results: StudyResults) -> list[TriedSetting]:
        """Returns the trials of rows at the settings that they try (`tune`).

        Args:
            results: those of the study.
        """
        with Reader(self.store) as reader:
            return reader.studies.tried(results)

    def _last_epochs(self, results: StudyResults, declared: Space) -> list[str]:
        """Returns a note if a mean over the last epochs needs clearly fewer seeds."""
        from ablate.report.last_epochs import EPOCHS, last_epochs_note

        metric = results.metric
        # With a validation split, the epochs are not measured on the test images.
        if metric.of or declared.data.validation:
            return []
        with Reader(self.store) as reader:
            trials = reader.trials.of(self.name)
            if min(trial.epochs for trial in trials) < 2 * EPOCHS:
                return []
            mean = reader.studies.values(self.name, metric.over_last(EPOCHS))
        last = {cell.index: cell.values for cell in results.cells}
        return last_epochs_note(metric, last, mean)

    def _images(self, results: StudyResults, declared: Space) -> Table:
        from ablate.report.effects_table import images_table
        from ablate.report.new_images import image_effects, seed_noise

        with Reader(self.store) as reader:
            images = reader.studies.correct_images(self.name)
        compared = effects(results, declared.criterion.margin)
        effects_on_images = image_effects(results, compared, images)
        if not effects_on_images and results.reported is not None:
            raise AblateError(
                f"{self.name} was trained elsewhere, so which test images are classified"
                " correctly is not known"
            )
        if not effects_on_images:
            raise AblateError(
                f"{self.name}: this comparison needs two seeds or more for which row 0"
                " and another row both have a stored list of correctly classified test"
                " images. `ablate run` stores these lists at the end of"
                " each trial of image classification with the built-in training, in one"
                " process"
            )
        return images_table(results, effects_on_images, seed_noise(images))

    def images(self) -> pd.DataFrame:
        """Returns how many trainings of each row get each test image right.

        The index is the number of the image in the order of the data. Each row of the
        study that has images is a column: the share of its seeds that get it right.
        """
        import numpy as np
        import pandas as pd

        with Reader(self.store) as reader:
            images = reader.studies.correct_images(self.name)
        by_row: dict[int, list[Any]] = {}
        for (row, _), correct in sorted(images.items()):
            by_row.setdefault(row, []).append(correct.array())
        shares = {
            row: pd.Series(np.mean(correct, axis=0)) for row, correct in by_row.items()
        }
        return pd.DataFrame(shares).rename_axis(index="image", columns="row")

    def _importance(self, results: StudyResults, declared: Space) -> Table:
        from ablate.report import effects_table as tables

        exact = tables.shares_table(results, declared.factors.baseline)
        if exact is not None:
            return exact
        from ablate.scheduling.strategies import MOST_LEVELS, importances

        shares_by_evaluator = importances(
            self._exported(results, declared),
            declared.factors,
            results.direction,
        )
        names = sorted(
            results.factors,
            key=lambda name: -shares_by_evaluator["ped_anova"].get(name, 0.0),
        )
        data = []
        for name in names:
            shares = {
                evaluator: shares_by_evaluator[evaluator].get(name)
                for evaluator in shares_by_evaluator
            }
            data.append({"factor": name, **shares})
        table = plain(data, results.question)
        notes = [
            "How much each factor contributes to the differences in the metric between"
            " the completed cells. ped_anova: how much the distribution of the"
            " factor's levels among the better cells differs from that among all"
            " cells. fanova: the share of the variance that the factor explains in a"
            " random forest (only for factors that every cell uses, and only if no"
            f" factor lists more than {MOST_LEVELS} levels). Both are"
            " estimates and can be far off. In a complete grid with two or more seeds,"
            " exact shares are computed instead."
        ]
        return replace(table, notes=notes)

    def published(self) -> dict[int, float]:
        """Returns the top-1 values that the study's paper prints, by row.

        Raises AblateError if the study refers to no table.
        """
        from ablate.published import matching_row, tables

        results, declared = self.read()
        if not declared.claim.published:
            raise AblateError(
                f"{self.name} names no published table; add one to its file, as in"
                " `published: augvit/table3`"
            )
        table = tables()[declared.claim.published]
        fixed = {
            "backbone": declared.network.backbone,
            "data.image_size": declared.data.image_size,
            "data.image_width": declared.data.image_width,
            **declared.factors.fixed,
        }
        rows = {
            cell.index: matching_row(
                table, shown_levels(cell), fixed, declared.network.head
            )
            for cell in results.cells
        }
        printed = {
            index: row.metrics[results.metric.name]
            for index, row in rows.items()
            if row is not None and results.metric.name in row.metrics
        }
        if not printed:
            raise AblateError(
                f"no row of {self.name} has the levels of a row of"
                f" {declared.claim.published}, so there are no published values to"
                " show"
            )
        return printed

    def plot(
        self,
        of: str = "effects",
        *,
        rows: Sequence[int] | None = None,
        metric: str = "",
        cost: str = "flops",
        published: bool = False,
        by: str = "",
        group: str = "",
        interactive: bool = False,
    ) -> Any:
        """Returns a figure of the study, which a notebook shows.

        >>> study.plot("pareto", cost="params").savefig("pareto.pdf")

        Args:
            of: effects, factors, interactions, contributions, pareto, curves,
                differences, importance, parallel, metric, tuning, sensitivity, sizes
                or scaling.
            rows: for curves and differences: the rows to draw; by default all.
            metric: for curves, differences and metric: one of the study's metrics; by
                default that of the study.
            cost: for pareto: flops, params or activations.
            published: for pareto: also draw the values that the study's published
                table prints.
            by: for metric: the factor on the x axis; for sensitivity: the
                hyperparameter.
            group: for metric: a factor of which each level is a line.
            interactive: return a figure of Plotly instead of one of matplotlib.

        Raises:
            UnknownName: there is no such chart.
            AblateError: there is nothing to draw yet, or the study's design does not
                determine it.
        """
        from ablate.results.study_charts import chart

        made = chart(
            self,
            of,
            rows=rows,
            metric=metric,
            cost=cost,
            published=published,
            by=by,
            group=group,
        )
        if interactive:
            from ablate.report.plotly_charts import draw

            return draw(made)
        from ablate.report.matplotlib_charts import drawn

        return drawn(made)

    def _repr_html_(self) -> str:
        """A forest plot, if there is an effect to draw, and the table."""
        table = str(html(self.results_table()))
        try:
            return f"{self.plot('effects')._repr_svg_()}{table}"
        except AblateError:
            return table

    def diagnostics(self) -> list[str]:
        """Returns the names of the diagnostics stored for the study."""
        with Reader(self.store) as reader:
            return reader.diagnostics.names(self.name)

    def layers(self, diagnostic: str) -> list[Line]:
        """Returns a diagnostic by layer: means over seeds, one line per cell.

        Raises UnknownName if none is stored.
        """
        with Reader(self.store) as reader:
            return lines(
                reader.studies.results(self.name),
                reader.diagnostics.layers(self.name, diagnostic),
            )

    def frame(self) -> pd.DataFrame:
        """Returns one row per cell and seed; factors, metrics and costs are columns.

        Of the name of several sizes, it has the rows of all of them, with a column for
        the size.
        """
        import pandas as pd

        if self.is_ladder:
            return self._frame_of_sizes()
        columns, rows = self.wide()
        frame = pd.DataFrame(rows, columns=columns)
        factors = self.declared().factors.levels
        levels_of = {column_of(name): levels for name, levels in factors.items()}
        for name, values in zip(columns, zip(*rows, strict=True), strict=False):
            # SQL has numeric levels as 0.0, and pandas turns whole numbers into 0.0
            # where a value is missing.
            kinds = {type(value) for value in levels_of.get(name) or values}
            measured = [value for value in values if value is not None]
            if kinds <= {int, type(None)} and all(value % 1 == 0 for value in measured):
                frame[name] = pd.array(values, dtype="Int64")
        return frame

    def _frame_of_sizes(self) -> pd.DataFrame:
        """Returns the frames of all sizes, one below the other."""
        import pandas as pd

        sizes = [Study(size.results.name, self.store).frame() for size in self.sizes()]
        return pd.concat(sizes, ignore_index=True)

    def pareto(self, objectives: Sequence[str] = (), *, history: bool = False) -> Table:
        """Returns the Pareto front of the study, or its hypervolume cell by cell.

        Args:
            objectives: such as `params=min`; by default those of the search, or the
                metric and fewest FLOPs.
            history: return the hypervolume after each cell instead of the front.

        Raises:
            AblateError: an objective is not NAME=max or NAME=min, or no cell is
                completed.
        """
        from ablate.report.pareto import pareto_table

        results, declared = self.read()
        directions: dict[str, str] = {
            results.metric.name: results.direction,
            "flops": "min",
        }
        if len(declared.criterion.objectives) > 1:
            directions = dict(declared.criterion.objectives)
        if objectives:
            costs = [field.name for field in fields(Cost)]
            pairs = [text.partition("=")[::2] for text in objectives]
            for name, direction in pairs:
                if name not in (results.metric.name, *costs) or direction not in (
                    "max",
                    "min",
                ):
                    names = ", ".join((results.metric.name, *costs))
                    raise AblateError(
                        f"{option('objective')} {name}={direction}: write NAME=max or NAME=min,"
                        f" with a NAME of {names}"
                    )
            directions = dict(pairs)
        return pareto_table(results, directions, history=history)

    def export(self, to: Path) -> int:
        """Writes the frame to a .parquet, .csv or .json file.

        Returns the number of its rows. In CSV, texts that a spreadsheet would take for
        formulas are marked (`ablate.escape.csv`); Parquet and JSON are exact.

        Raises:
            AblateError: the file has another ending.
        """
        _check_ending(to)
        return _write_frame(self.frame(), to)

    def export_optuna(self, to: str) -> int:
        """Writes the cells that have an outcome to an Optuna storage.

        They become a study of the same name. Returns their number.

        Args:
            to: URL of the storage, such as sqlite:///optuna.db.

        Raises:
            AblateError: the storage already has a study of that name, or cannot be
                opened.
        """
        from ablate.scheduling.strategies import export

        results, declared = self.read()
        exported = self._exported(results, declared)
        export(
            exported,
            declared.factors,
            declared.criterion.objectives,
            to,
            self.name,
        )
        return len(exported)

    def _exported(self, results: StudyResults, declared: Space) -> list[Exported]:
        """Returns the cells that have an outcome, for Optuna."""
        from ablate.plan.limits import violations
        from ablate.scheduling.outcomes import outcome_of
        from ablate.scheduling.strategies import CellOutcome, Exported

        with Reader(self.store) as reader:
            hashes: dict[int, list[str]] = {}
            for trial in reader.trials.of(self.name):
                hashes.setdefault(trial.row, []).append(trial.trial)
            known = reader.trials.known(itertools.chain.from_iterable(hashes.values()))
        if results.reported is not None:
            known = {key: _as_an_epoch(trial) for key, trial in known.items()}
        baseline = results.baseline.cost if results.baseline else None
        exported = []
        for cell in results.cells:
            each = [known[key] for key in hashes.get(cell.index, ())]
            if (
                cell.same_as is not None
                or cell.role == "control"
                or any(trial.status not in RESOLVED for trial in each)
            ):
                continue
            levels = {
                name: level
                for name, level in cell.levels.items()
                if name not in cell.unread
            }
            if cell.cost:
                settings = {**declared.factors.fixed, **cell.levels}
                broken = violations(declared.limits, cell.cost, baseline, settings)
            else:
                broken = {}
            attributes = {
                "row": cell.index,
                "trials": hashes.get(cell.index, []),
                "note": cell.note,
            }
            if cell.cost is None:
                costs = {}
            else:
                costs = {"params": cell.cost.params, "flops": cell.cost.flops}
            if each:
                outcome = outcome_of(each, declared.criterion, cell.cost)
            else:
                outcome = CellOutcome("failed")
            exported.append(
                Exported(
                    levels=levels,
                    outcome=outcome,
                    violations=broken,
                    attributes=attributes | costs,
                )
            )
        return exported

    def wide(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Returns columns and rows of the study's wide SQL view."""
        with Reader(self.store) as reader:
            return reader.studies.wide(self.name)


@dataclass(frozen=True)
class ReadStudy(Study):
    """A study that is read once, for a report of many parts.

    All parts show the same state, also of a study that runs.
    """

    @cached_property
    def _read(self) -> tuple[StudyResults, Space]:
        return super().read()

    @cached_property
    def _effects(self) -> list[Effect]:
        return super().effects()

    @cached_property
    def _is_ladder(self) -> bool:
        return super().is_ladder

    @property
    def is_ladder(self) -> bool:
        return self._is_ladder

    def read(self) -> tuple[StudyResults, Space]:
        return self._read

    def results(self) -> StudyResults:
        return self._read[0]

    def effects(self, margin: float | None = None) -> list[Effect]:
        if margin in (None, self._read[1].criterion.margin):
            return self._effects
        return super().effects(margin)


def _missing(of: str, results: StudyResults) -> str:
    """Returns what a study lacks to have effects of rows or controls."""
    if of != "controls":
        return "no row to compare with row 0"
    if results.reported is not None:
        return "no controls: its runs were trained elsewhere"
    return "no controls; add the line `control: iso-flops` to the study's file"


def _as_an_epoch(known: Known) -> Known:
    """Returns a trial that was trained elsewhere as one epoch with its results."""
    epoch = Epoch(number=1, metrics=known.final, lr=None, seconds=0.0)
    return replace(known, epochs=(epoch,))


ENDINGS = (".parquet", ".csv", ".json")


def export_all(store: str, to: Path) -> int:
    """Writes the trials of all studies of a store to one .parquet, .csv or .json file.

    The first column is the study. A trial that several studies have is there once for
    each. Columns that a study lacks, such as factors of others, are empty. Returns the
    number of rows.

    Raises:
        AblateError: the file has another ending, or the store holds no study.
    """
    import pandas as pd

    _check_ending(to)
    with Reader(store) as reader:
        names = list(reader.studies.names().values())
    if not names:
        raise AblateError("the store holds no study yet; `ablate run FILE` makes one")
    frames = []
    for name in names:
        frame = Study(name, store).frame()
        frame.insert(0, "study", name)
        # A level may be a number in one study and a text in another.
        frames.append(frame.astype(object))
    whole = pd.concat(frames, ignore_index=True)
    whole = whole.infer_objects()
    for name in whole.columns:
        if whole[name].dtype == object and to.suffix == ".parquet":
            # A column of a Parquet file has one type.
            whole[name] = whole[name].map(level_text, na_action="ignore")
    return _write_frame(whole, to)


def _check_ending(to: Path) -> None:
    """Raises AblateError if a file has none of the endings."""
    if to.suffix not in ENDINGS:
        like = to.parent / f"{to.stem or 'trials'}.parquet"
        raise AblateError(
            f"{to}: trials are written to {', '.join(ENDINGS)}; name a file like {like}"
        )


def _write_frame(frame: pd.DataFrame, to: Path) -> int:
    to.parent.mkdir(parents=True, exist_ok=True)
    if to.suffix == ".parquet":
        frame.to_parquet(to, index=False)
    elif to.suffix == ".csv":
        frame.map(escape.csv).rename(columns=escape.csv).to_csv(to, index=False)
    else:
        to.write_text(
            escape.json(frame.to_json(orient="records", indent=1)), encoding="utf-8"
        )
    return len(frame)
