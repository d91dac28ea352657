"""The tools of `ablate mcp`: plan, run within a budget, and read results.

What it guarantees: no tool writes outside the folder of the runs, and none trains
beyond the budget. The budget is that of the store, so it holds over kills and restarts
of the server.

How: a run is a process of its own (`ablate run`), one at a time, with the limits that
are left. All other tools read, in this process.

What would break it: a run that is started beside another one, because each gets all
that is left of the budget. Tools may run in several threads, so `run` holds a lock.
"""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from pydantic import BaseModel, Field

from ablate import budget
from ablate.cli import answers
from ablate.errors import AblateError, shortened
from ablate.records import CHAINS
from ablate.report.table import Table

GUIDE = """\
ablate finds out which part of an architecture earns its cost. One YAML text, the space,
declares a study: a question, a backbone, the factors that vary, the data, a recipe and
seeds. Row 0 is the baseline; verdicts compare the other rows with it.

1. `example` returns a space with all keys explained. `parts` lists the factors.
2. `plan` checks a space and shows its rows, its cost, and which differences its seeds
   can find. It trains nothing. Decide on rows, seeds and `primary` now: a verdict at 5 %
   holds for what was declared before its results.
3. `run` trains, within the budget. `wait` says when it has ended. The same text trains
   nothing twice; a text with more seeds trains these only.
4. `effects` has the verdicts. Report them as they are: `inconclusive` is no small
   effect. Adding seeds, dropping rows or changing the margin after results is a second
   chance, which the store counts. `review` lists what a referee would object to; state
   what it finds with the results.

To accept changes one after another, propose each to a chain with `chain`, and do what
`next` says: at most 5 % of what it keeps is not better, on average.

One study without any effect in twenty has a false verdict. After many studies, report
only what stands in `errors` of `status`, and say how many studies there were.
"""
# The most lines of a run that `wait` repeats.
LINES = 12
# How often a waiting tool looks, in seconds.
STEP = 0.2
# How long a run may take to save its checkpoints when it is stopped, in seconds.
STOP_SECONDS = 60
# `ablate run` ends with these codes if it was interrupted, and if its budget was used.
INTERRUPTED, EXHAUSTED = 130, 3

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Row = TypeVar("Row", bound=BaseModel)
SpaceText = Annotated[str, Field(description="the YAML text of a space")]
StudyName = Annotated[str, Field(description="the name of a study; see `status`")]


def _tool(method: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turns a mistake into a short answer."""

    @functools.wraps(method)
    def tool(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        from mcp.server.mcpserver.exceptions import ToolError

        try:
            return method(*args, **kwargs)
        except AblateError as error:
            raise ToolError(str(error)) from None

    return tool


@dataclass
class Tools:
    """The tools of one server.

    Attributes:
        runs: folder of the store, the checkpoints and the spaces.
        url: the store.
        limits: what all runs in the store may use together.
        how: further options of `ablate run`.
    """

    runs: Path
    url: str
    limits: budget.Budget
    how: tuple[str, ...] = ()
    _run: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _study: str = field(default="", init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _leaving: threading.Event = field(default_factory=threading.Event, init=False)

    @property
    def all(self) -> tuple[Callable[..., Any], ...]:
        """Every tool, in the order of their use."""
        return (
            self.example,
            self.parts,
            self.plan,
            self.run,
            self.wait,
            self.stop,
            self.status,
            self.table,
            self.effects,
            self.factors,
            self.sizes,
            self.chain,
            self.review,
            self.pareto,
            self.query,
        )

    @_tool
    def example(self) -> str:
        """Return a space to start from. It explains every key, and trains as it is."""
        return Path(__file__).with_name("space.yaml").read_text(encoding="utf-8")

    @_tool
    def parts(
        self, name: Annotated[str, Field(description="a factor; empty: all")] = ""
    ) -> answers.Query:
        """List the factors that a space may vary, with their levels and sources."""
        from ablate.cli.tables import factors_table

        return answers.Query(
            rows=[dict(row) for row in factors_table(name or None).data]
        )

    @_tool
    def plan(self, space: SpaceText, name: answers.Name) -> answers.Plan:
        """Check a space, and show what it would train. Trains nothing."""
        from ablate import pipeline
        from ablate import space as spaces
        from ablate.cli.generations import generation_lines
        from ablate.cli.power import power_lines
        from ablate.cli.tables import plan_table

        sizes = spaces.at_sizes(_loaded(space, name), name)
        previews = pipeline.previews(sizes, self.url, probe=False)
        table = plan_table(*previews)
        seconds = [shown.seconds for shown in previews if shown.seconds is not None]
        is_known = len(seconds) == len(previews)
        return answers.Plan.model_validate(
            {
                "rows": table.data,
                "notes": [*table.notes, *generation_lines(previews[0])],
                "trials": sum(len(shown.plan.trials) for shown in previews),
                "to_train": sum(len(shown.to_train) for shown in previews),
                "seconds": sum(seconds) if is_known else None,
                "more": previews[0].more_cells,
                "power": power_lines(previews[0]) if len(previews) == 1 else [],
            }
        )

    @_tool
    def run(
        self,
        space: SpaceText,
        name: answers.Name,
        seconds: Annotated[
            float, Field(ge=0, le=60, description="how long to wait for its end")
        ] = 30,
    ) -> answers.Run:
        """Train the trials of a space that have no result, within the budget.

        Returns after its end or after so many seconds; it then goes on, and `wait`
        says when it has ended. One study trains at a time.
        """
        declared = _loaded(space, name)
        with self._lock:
            self._start(declared.name, space, name)
        return self._waited(seconds)

    def _start(self, study: str, space: str, name: str) -> None:
        """Starts a run with what is left of the budget."""
        if self._run is not None and self._run.poll() is None:
            raise AblateError(
                f"a run of {self._study} is still training; call `wait` until it ends,"
                " or `stop`"
            )
        left = self._flags(self._used(study))
        folder = self.runs / "spaces"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.yaml"
        file.write_text(space, encoding="utf-8")
        with self._log(study).open("wb") as log:
            self._run = subprocess.Popen(
                self._command("run", str(file), *left),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._study = study

    def _command(self, *words: str) -> list[str]:
        """A command on the store of this server."""
        place = ("--runs", str(self.runs), "--store", self.url)
        return [sys.executable, "-m", "ablate", *words, *place, *self.how]

    @_tool
    def wait(
        self,
        seconds: Annotated[
            float, Field(ge=0, le=60, description="how long to wait at most")
        ] = 30,
    ) -> answers.Run:
        """Wait for the end of the run."""
        return self._waited(seconds)

    @_tool
    def stop(self) -> answers.Run:
        """Stop the run. Its results are stored; the same space goes on from them."""
        self.close()
        return self._waited(0)

    @_tool
    def status(self) -> answers.Status:
        """List the studies of the store, what trains now, and both budgets.

        `errors` says which verdicts also hold if all studies share one error budget.
        """
        from ablate.cli.tables import studies_table
        from ablate.results.project import budget_of, budget_table
        from ablate.statistics.error_budget import error_budget
        from ablate.store.database import exists

        rows: list[Any] = []
        errors = error_budget([])
        if exists(self.url):
            rows = list(studies_table(self.url).data)
            errors = budget_of(self.url)
        running = self._run is not None and self._run.poll() is None
        return answers.Status.model_validate(
            {
                "rows": rows,
                "running": self._study if running else "",
                "budget": self._budget(),
                "errors": {
                    "next_level": errors.next_level,
                    "studies": budget_table(errors).data,
                },
            }
        )

    @_tool
    def table(self, study: StudyName) -> answers.Answer[answers.ResultRow]:
        """Show the results of a study: mean and sd over seeds, difference, cost."""
        return _answer(self._single(study).results_table(), answers.ResultRow)

    @_tool
    def effects(
        self,
        study: StudyName,
        of: Annotated[
            Literal["rows", "controls"],
            Field(description="rows against row 0, or against a control of equal cost"),
        ] = "rows",
    ) -> answers.Answer[answers.EffectRow]:
        """Give the verdicts on rows: helps, hurts, no difference or inconclusive."""
        return _answer(self._single(study).effects_table(of), answers.EffectRow)

    @_tool
    def factors(
        self,
        study: StudyName,
        of: Annotated[
            Literal["factors", "interactions"],
            Field(description="main effects, or two factors beyond their sum"),
        ] = "factors",
    ) -> answers.Answer[answers.TermRow]:
        """Give the effects of factors over all cells of a study."""
        return _answer(self._read(study).effects_table(of), answers.TermRow)

    @_tool
    def sizes(self, study: StudyName) -> answers.Answer[answers.SizesRow]:
        """Give the verdicts on rows along sizes, of a space with `across`."""
        return _answer(self._read(study).effects_table("sizes"), answers.SizesRow)

    @_tool
    def chain(
        self,
        chain: Annotated[str, Field(description="the name of a chain")],
        proposal: Annotated[
            str,
            Field(
                description="a commit, levels such as norm=rms,depth=2, or the name of"
                " results; first, the baseline"
            ),
        ],
        results: Annotated[
            dict[int, float | None] | None,
            Field(description="by seed, if you trained it yourself; null: it diverged"),
        ] = None,
        direction: Annotated[
            Literal["max", "min"] | None,
            Field(description="of a new chain with results: what is better"),
        ] = None,
        space: Annotated[
            str | None,
            Field(
                description="of a new chain of levels: the space, as YAML, whose row 0 is"
                " the baseline; `proposal` names it"
            ),
        ] = None,
        seconds: Annotated[
            float, Field(ge=0, le=60, description="how long to wait for a decision")
        ] = 30,
    ) -> answers.Proposed:
        """Propose a change to a chain: keep, discard, or more seeds.

        What is kept becomes the baseline. A commit, or a row of a space, is trained within
        the budget; while it trains, the answer is `more seeds`, and the same call waits
        on.
        """
        from ablate.pipeline import Options
        from ablate.text.document import parse
        from ablate.trained.chain import Chain

        ours = Chain(chain, Options(self.runs, self.url))
        if space is not None:
            if results is not None or direction is not None:
                raise AblateError("space goes without results and direction")
            values = {**parse(space, f"{proposal}.yaml").values, "name": proposal}
            return answers.Proposed.model_validate(ours.begin_space(values).to_dict())
        if results is None:
            if direction is not None:
                raise AblateError("direction goes with results; leave it out")
            if ours.proposals():
                return self._trained(ours, proposal, seconds)
            return answers.Proposed.model_validate(ours.begin(proposal).to_dict())
        if ours.proposals():
            answer = ours.report(proposal, results)
        elif direction is None:
            raise AblateError("a new chain with results needs direction: max or min")
        else:
            answer = ours.begin_reported(proposal, results, direction=direction)
        return answers.Proposed.model_validate(answer.to_dict())

    def _trained(self, chain: Any, proposal: str, seconds: float) -> answers.Proposed:
        """Trains a proposal in a process of its own, and waits for so many seconds."""
        study = f"{CHAINS}{chain.name}/{proposal}"
        output = self._log(study).with_suffix(".json")
        with self._lock:
            is_training = self._run is not None and self._run.poll() is None
            if is_training and self._study != study:
                raise AblateError(
                    f"{self._study} is still training; call `wait` until it ends, or"
                    " `stop`"
                )
            if not is_training:
                left = self._flags(self._used_by_chain(chain.name))
                words = ("chain", "propose", chain.name, proposal, "--format", "json")
                output.parent.mkdir(parents=True, exist_ok=True)
                with self._log(study).open("wb") as log, output.open("wb") as answer:
                    self._run = subprocess.Popen(
                        self._command(*words, *left),
                        stdin=subprocess.DEVNULL,
                        stdout=answer,
                        stderr=log,
                    )
                self._study = study
        while True:
            run = self._waited(seconds)
            text = output.read_text(errors="replace").strip()
            if text:
                return answers.Proposed.model_validate_json(text)
            if run.state != "running":
                raise AblateError(run.message.removeprefix("error: "))
            answer = chain.progress(proposal)
            if answer is not None:
                return answers.Proposed.model_validate(answer.to_dict())
            # It is registered within a second.
            seconds = STEP

    def _used_by_chain(self, chain: str) -> budget.Used:
        from ablate.store.database import exists
        from ablate.store.reader import Reader

        if not exists(self.url):
            return budget.Used()
        with Reader(self.url) as reader:
            names = [
                study.name
                for study in reader.studies.all()
                if study.name.startswith(f"{CHAINS}{chain}/")
            ]
            return reader.costs.used(names) if names else budget.Used()

    @_tool
    def review(self, study: StudyName) -> answers.Answer[answers.FindingRow]:
        """List what a sceptical referee would object to, and what fixes it."""
        from ablate.results.review.findings_table import review_table

        table = review_table(study, self.url, "")
        return _answer(table, answers.FindingRow)

    @_tool
    def pareto(self, study: StudyName) -> answers.Answer[answers.FrontRow]:
        """List the cells that no other cell dominates in metric and FLOPs."""
        return _answer(self._read(study).pareto(), answers.FrontRow)

    @_tool
    def query(
        self, sql: Annotated[str, Field(description="one SELECT; it cannot write")]
    ) -> answers.Query:
        """Run a read-only SQL query, e.g. on the view study_results."""
        from ablate.store.queries import OTHERS_ROWS, OTHERS_SECONDS
        from ablate.store.reader import Reader

        with Reader(self.url) as reader:
            columns, rows = reader.query(
                sql, most=OTHERS_ROWS + 1, seconds=OTHERS_SECONDS, by_others=True
            )
        if len(rows) > OTHERS_ROWS:
            raise AblateError(
                f"the query returns more than {OTHERS_ROWS:,} rows; ask for less, as"
                " with WHERE or LIMIT"
            )
        twice = {column for column in columns if columns.count(column) > 1}
        if twice:
            raise AblateError(
                f"the query returns the column '{min(twice)}' twice; rename one with AS"
            )
        texts = [map(_plain, row) for row in rows]
        return answers.Query(
            rows=[dict(zip(columns, row, strict=True)) for row in texts]
        )

    def leave(self) -> None:
        """Ends all waiting, because the server ends."""
        self._leaving.set()

    def close(self) -> None:
        """Stops the run, if there is one, and waits until it has saved its state."""
        if self._run is None or self._run.poll() is not None:
            return
        self._run.send_signal(signal.SIGTERM)
        try:
            self._run.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            # The store survives a kill at any time.
            self._run.kill()
            self._run.wait()

    def _read(self, study: str) -> Any:
        from ablate.results.study import Study

        return Study(study, self.url)

    def _single(self, study: str) -> Any:
        """Returns a study.

        Raises:
            AblateError: it is the name of several sizes.
        """
        if self._read(study).is_ladder:
            raise AblateError(
                f"{study} has several sizes; the tool `sizes` gives its verdicts"
            )
        return self._read(study)

    def _log(self, study: str) -> Path:
        name = "".join(letter if letter.isalnum() else "-" for letter in study)
        return self.runs / "spaces" / f"{name}.log"

    def _waited(self, seconds: float) -> answers.Run:
        if self._run is None:
            raise AblateError("this server has started no run yet; call `run` first")
        deadline = time.monotonic() + seconds
        # In short steps, so that the server can end meanwhile.
        while self._run.poll() is None and time.monotonic() < deadline:
            if self._leaving.wait(STEP):
                break
        lines = self._log(self._study).read_text(errors="replace").splitlines()
        return answers.Run(
            study=self._study,
            state=_state(self._run.poll()),
            message="\n".join(lines[-LINES:]),
            budget=answers.Budget.model_validate(self._budget()),
        )

    def _used(self, study: str = "") -> budget.Used:
        from ablate.store.database import exists
        from ablate.store.reader import Reader

        if not exists(self.url):
            return budget.Used()
        with Reader(self.url) as reader:
            if not study:
                return reader.costs.used()
            sizes = [size.name for size in reader.studies.sizes(study)]
            return reader.costs.used(sizes or [study])

    def _budget(self) -> dict[str, Any]:
        """What is used of each limit."""
        used = self._used()
        amounts = {
            "trials": len(used.trials),
            "hours": used.seconds / budget.SECONDS_PER_HOUR,
        }
        return {
            name: {"limit": getattr(self.limits, name), "used": amount}
            for name, amount in amounts.items()
        }

    def _flags(self, used: budget.Used) -> list[str]:
        """Returns the limits of a run: what its study has used, and what is left.

        Raises:
            AblateError: nothing is left.
        """
        before = {
            "trials": len(used.trials),
            "hours": used.seconds / budget.SECONDS_PER_HOUR,
        }
        flags = []
        for name, state in self._budget().items():
            if state["limit"] is None:
                continue
            left = max(state["limit"] - state["used"], 0)
            # Trials that the study has begun may go on.
            total = before[name] + left
            if not total or (not left and name != "trials"):
                raise AblateError(
                    f"the budget of this server is used up: {state['used']:g} of"
                    f" {state['limit']:g} {name}; only a person can raise it"
                )
            flags += [f"--max-{name}", str(total)]
        return flags


def _loaded(text: str, name: str) -> Any:
    """Reads a space.

    The name becomes that of a file. The protocol checks it too, but a call in this
    process does not.
    """
    from ablate import space

    if not re.fullmatch(answers.NAME, name):
        raise AblateError(
            f"'{shortened(name)}' is no name of a space; use 1 to 64 letters, digits, -"
            " and _, and begin with a letter or digit"
        )
    return space.load(text, f"{name}.yaml")


def _answer(table: Table, row: type[Row]) -> answers.Answer[Row]:
    return answers.Answer(
        rows=[row.model_validate(data) for data in table.data], notes=list(table.notes)
    )


def _plain(value: Any) -> Any:
    """Returns a value of SQL as JSON can have it."""
    return value.hex() if isinstance(value, bytes) else value


def _state(code: int | None) -> answers.State:
    states: dict[int | None, answers.State] = {
        None: "running",
        0: "finished",
        INTERRUPTED: "interrupted",
        EXHAUSTED: "budget used up",
    }
    return states.get(code, "failed")
