"""The results of a study, for Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate import escape, report, space
from ablate.errors import AblateError
from ablate.records import Cost, Space, StudyResults
from ablate.report.effects import Effect, control_effects, effects
from ablate.report.grid import plain
from ablate.report.wording import policy
from ablate.store.reader import Reader

if TYPE_CHECKING:
    import pandas as pd

    from ablate.plan.strategies import Exported


@dataclass(frozen=True)
class Study:
    """The results of a study in a store, for Python.

    >>> study = ablate.run("search_spaces/quickstart.yaml")
    >>> print(study.table())
    """

    name: str
    store: str

    def results(self) -> StudyResults:
        """All cells with their levels, costs, states and values."""
        with Reader(self.store) as reader:
            return reader.results(self.name)

    def declared(self) -> Space:
        """The space as it was last run."""
        return self.read()[1]

    def read(self) -> tuple[StudyResults, Space]:
        """All cells, and the space as it was last run."""
        results = self.results()
        return results, space.load(results.document, self.name, stored=True)

    def grid(self, *, published: bool = False, group: str = "") -> report.Grid:
        """The study's table.

        Args:
            published: the paper's top-1 in a column of its own.
            group: a factor; rows of equal levels of it stand together.
        """
        results, declared = self.read()
        printed = self.published() if published else None
        return report.results_grid(
            results, printed, looks=declared.looks, policy=policy(declared), group=group
        )

    def table(self, form: str = "md") -> str:
        """The study's table as md, latex, html, csv or json."""
        return report.render(self.grid(), form)

    def effects(self, margin: float | None = None) -> list[Effect]:
        """What each row does against the first: paired differences with intervals,
        adjusted p values and verdicts.

        Args:
            margin: the least difference that counts as one; by default the study's.
        """
        results, declared = self.read()
        return effects(
            results, declared.margin if margin is None else margin, declared.looks
        )

    def effects_grid(
        self, of: str = "rows", margin: float | None = None
    ) -> report.Grid:
        """Effects of rows, controls, factors, interactions or contributions as a table;
        or the importance of factors.

        Raises:
            AblateError: there are not the cells or seeds to tell them.
        """
        from ablate.report import effects_grid as grids

        results, declared = self.read()
        least = declared.margin if margin is None else margin
        if of == "importance":
            if margin is not None:
                raise AblateError(
                    f"--margin {margin:g} is of verdicts; --of importance has none:"
                    " leave it out"
                )
            return self._importance(results, declared)
        if of in ("factors", "interactions"):
            return grids.factors_grid(
                results,
                declared.baseline,
                least,
                declared.looks,
                interactions=of == "interactions",
            )
        if of == "contributions":
            return grids.contributions_grid(
                results, declared.baseline, declared.full, least, declared.looks
            )
        if of == "controls":
            found = control_effects(results, least, declared.looks)
        else:
            found = self.effects(least)
        if not found:
            if of == "controls":
                missing = (
                    "no variant with an iso-cost control; add `control: iso-flops`"
                )
            else:
                missing = "no variant"
            raise AblateError(f"{self.name} has {missing}")
        return grids.effects_grid(results, found, least, controls=of == "controls")

    def _importance(self, results: StudyResults, declared: Space) -> report.Grid:
        from ablate.plan.strategies import importances

        found = importances(
            self._exported(results, declared), declared.factors, results.direction
        )
        names = sorted(
            results.factors, key=lambda name: -found["ped_anova"].get(name, 0.0)
        )
        data = []
        for name in names:
            shares = {evaluator: found[evaluator].get(name) for evaluator in found}
            data.append({"factor": name, **shares})
        grid = plain(data, results.question)
        notes = [
            "Shares of what each factor matters for the metric among completed cells:"
            " ped_anova by what sets the better cells off, fanova by the variance that"
            " a random forest explains (only factors that every cell reads)."
        ]
        return replace(grid, notes=notes)

    def published(self) -> dict[int, float]:
        """The top-1 that the study's paper prints, by row.

        Raises AblateError where the study names no table.
        """
        from ablate.published import matching_row, tables

        results, declared = self.read()
        if not declared.published:
            raise AblateError(
                f"{self.name} names no published table; add one to its file, as in"
                " `published: augvit/table3`"
            )
        table = tables()[declared.published]
        fixed = {
            "backbone": declared.backbone,
            "data.image_size": declared.data.image_size,
            **declared.fixed,
        }
        rows = {
            cell.index: matching_row(table, report.shown_levels(cell), fixed)
            for cell in results.cells
        }
        found = {
            index: row.top1
            for index, row in rows.items()
            if row is not None and row.top1 is not None
        }
        if not found:
            raise AblateError(
                f"no row of {self.name} is one of {declared.published}, so there is"
                " nothing to show beside it"
            )
        return found

    def diagnostics(self) -> list[str]:
        """The diagnostics that are stored of its trials."""
        with Reader(self.store) as reader:
            return reader.diagnostics(self.name)

    def layers(self, diagnostic: str) -> list[report.Line]:
        """A diagnostic by layer, means over seeds, one line a cell.

        Raises UnknownName where none is stored.
        """
        with Reader(self.store) as reader:
            return report.lines(
                reader.results(self.name), reader.layers(self.name, diagnostic)
            )

    def frame(self) -> pd.DataFrame:
        """One row a cell and seed: a column for each factor, metric and cost."""
        import pandas as pd

        columns, rows = self.wide()
        return pd.DataFrame(rows, columns=columns)

    def pareto(
        self, objectives: Sequence[str] = (), *, history: bool = False
    ) -> report.Grid:
        """The Pareto front of the study, or its hypervolume cell by cell.

        Args:
            objectives: as `params=min`; by default those of the search, or the metric
                and fewest FLOPs.

        Raises:
            AblateError: an objective is not NAME=max or NAME=min, or no cell is
                completed.
        """
        from ablate.report.pareto import pareto_grid

        results, declared = self.read()
        found: dict[str, str] = {results.metric: results.direction, "flops": "min"}
        if len(declared.objectives) > 1:
            found = dict(declared.objectives)
        if objectives:
            costs = [field.name for field in fields(Cost)]
            pairs = [text.partition("=")[::2] for text in objectives]
            for name, direction in pairs:
                if name not in (results.metric, *costs) or direction not in (
                    "max",
                    "min",
                ):
                    known = ", ".join((results.metric, *costs))
                    raise AblateError(
                        f"--objective {name}={direction}: write NAME=max or NAME=min,"
                        f" with a NAME of {known}"
                    )
            found = dict(pairs)
        return pareto_grid(results, found, history=history)

    def export(self, to: Path) -> int:
        """Writes the frame to a .parquet, .csv or .json file; gives the number of its
        rows.

        In CSV, texts that a spreadsheet would take for formulas are marked
        (`ablate.escape.csv`); Parquet and JSON are exact.

        Raises:
            AblateError: the file has another ending.
        """
        endings = (".parquet", ".csv", ".json")
        if to.suffix not in endings:
            like = to.parent / f"{to.stem or 'trials'}.parquet"
            raise AblateError(
                f"{to}: trials are written to {', '.join(endings)}; name a file like"
                f" {like}"
            )
        frame = self.frame()
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

    def export_optuna(self, to: str) -> int:
        """Writes the cells that have come to something as a study of the same name in
        an Optuna storage; gives their number.

        Args:
            to: URL of the storage, as sqlite:///optuna.db.

        Raises:
            AblateError: the storage has a study of that name already, or cannot be
                opened.
        """
        from ablate.plan.strategies import export

        results, declared = self.read()
        found = self._exported(results, declared)
        export(found, declared.factors, declared.objectives, to, self.name)
        return len(found)

    def _exported(self, results: StudyResults, declared: Space) -> list[Exported]:
        """The cells that have come to something, for Optuna."""
        from ablate.plan.limits import violations
        from ablate.plan.search import RESOLVED, judge
        from ablate.plan.strategies import Exported, Verdict

        with Reader(self.store) as reader:
            hashes: dict[int, list[str]] = {}
            for trial in reader.trials(self.name):
                hashes.setdefault(trial["row"], []).append(trial["trial"])
            known = reader.known(key for keys in hashes.values() for key in keys)
        baseline = next(
            (
                cell.cost
                for cell in results.cells
                if cell.role in ("reference", "baseline")
            ),
            None,
        )
        found = []
        for cell in results.cells:
            each = [known[key] for key in hashes.get(cell.index, ())]
            if (
                cell.same_as is not None
                or cell.role == "control"
                or any(one.status not in RESOLVED for one in each)
            ):
                continue
            levels = {
                name: level
                for name, level in cell.levels.items()
                if name not in cell.unread
            }
            if cell.cost:
                broken = violations(declared.limits, cell.cost, baseline)
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
                verdict = judge(each, declared.objectives, cell.cost)
            else:
                verdict = Verdict("failed")
            found.append(
                Exported(
                    levels=levels,
                    verdict=verdict,
                    violations=broken,
                    attributes=attributes | costs,
                )
            )
        return found

    def wide(self) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Columns and rows of the study's wide SQL view."""
        with Reader(self.store) as reader:
            view = reader.study(self.name).results_view
            return reader.view(view)
