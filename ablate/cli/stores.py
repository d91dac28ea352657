"""Verbs on the store: query it, free its disk space, and move studies in and out of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    CheckpointsOption,
    FormatOption,
    RunsOption,
    Service,
    StoreOption,
    StudyArgument,
    WithOption,
    followed,
    place_of,
    url_of,
)
from ablate.cli.output import Format, show, tell
from ablate.text import escape


def query(
    statement: Annotated[
        str,
        typer.Argument(
            metavar="SQL",
            help="One SELECT over the tables and views; docs/sql.md lists them.",
        ),
    ],
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Run a read-only SQL query on the store."""
    from ablate.errors import AblateError
    from ablate.report.table import Table, plain
    from ablate.store.reader import Reader

    with Reader(url_of(store, runs)) as reader:
        role = reader.writing_role()
        columns, rows = reader.query(statement)
    if role:
        tell(
            f"The role '{role}' may write to the store, so a query can end the sessions"
            " of running studies. docs/sql.md says how to make a role that can only read."
        )
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise AblateError(
            f"the query returns the column '{twice[0]}' twice; rename one with AS"
        )
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    show(plain(data) if data else Table(columns, [], []), form.value)


class Freeable(StrEnum):
    """Checkpoints that can be freed."""

    finished = "finished"
    unused = "unused"
    other_stores = "other-stores"


def disk(
    free: Annotated[
        list[Freeable] | None,
        typer.Option(
            "--free",
            help=(
                "Which checkpoints to remove. finished: checkpoints of completed and"
                " diverged trials. unused: checkpoints of trials that belong to no"
                " study. other-stores: checkpoints of other stores; unfinished trials"
                " of those stores then start from the beginning. Repeatable. Results"
                " stay in the store."
            ),
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    checkpoints: CheckpointsOption = "",
    form: FormatOption = Format.table,
) -> None:
    """Show the disk space of checkpoints, and with --free, remove checkpoints.

    The checkpoints of unfinished trials of this store are always kept.
    """
    from ablate.cli.tables import disk_table
    from ablate.pipeline import Options
    from ablate.report.units import size_text
    from ablate.trained import disk as on_disk

    options = Options(runs, store, checkpoints=checkpoints)
    if free:
        freed = on_disk.free(options, [kind.value for kind in free])
        tell(f"freed {size_text(freed.size)} in {freed.folders} folders")
        if freed.busy:
            tell(f"{freed.busy} folders were kept, because a process uses them")
    show(disk_table(on_disk.usage(options), place_of(store, runs)), form.value)


def export(
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="Name of a study; `ablate status` lists them."
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="File to write, one row per trial: .parquet, .csv or .json.",
            show_default=False,
        ),
    ] = None,
    whole: Annotated[
        bool,
        typer.Option("--all", help="Write all studies to one file, instead of one."),
    ] = False,
    optuna: Annotated[
        str,
        typer.Option(
            "--optuna",
            metavar="URL",
            help="Instead of --to: write the cells to this Optuna storage, such as"
            " sqlite:///optuna.db.",
        ),
    ] = "",
    log: Annotated[
        list[Service] | None,
        typer.Option(
            "--log",
            help="Instead of --to: log the epochs of the trials that have ended to this"
            " service, as `ablate run --log` does. Repeatable.",
        ),
    ] = None,
    own: WithOption = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write the trials of a study to a file, or log them to a service.

    The file is for pandas and other tools; optuna-dashboard shows the storage.
    """
    from ablate.errors import AblateError
    from ablate.results.study import Study, export_all

    if (study is None) != whole:
        raise AblateError(
            "name a study, or write --all for all of them: ablate export STUDY --to"
            " FILE.parquet, or ablate export --all --to FILE.parquet"
        )
    if own and not log:
        raise AblateError(
            "--with goes with --log; what is written to a file needs no parts"
        )
    if study is None:
        if to is None or optuna or log:
            raise AblateError("--all goes with --to FILE, such as --to all.parquet")
        tell(f"wrote {export_all(url_of(store, runs), to)} trials to {to}")
        return
    if sum(map(bool, (to, optuna, log))) != 1:
        raise AblateError(
            "name exactly one destination, a file, a storage or a service: ablate export"
            f" {escape.shell(study)} --to"
            f" {escape.shell(study.replace('/', '-'))}.parquet, --optuna"
            " sqlite:///optuna.db, or --log tensorboard"
        )
    if log:
        _log(study, log, store, runs)
        return
    exported = Study(study, url_of(store, runs))
    if to is not None:
        tell(f"wrote {exported.export(to)} trials to {to}")
        return
    written = exported.export_optuna(optuna)
    tell(f"wrote {written} cells. View them with: optuna-dashboard {optuna}")


def _log(study: str, services: Sequence[Service], store: str, runs: Path) -> None:
    """Logs the trials of a study to services."""
    from ablate.cli.output import Steps
    from ablate.pipeline import Options
    from ablate.trained.log_stored import log_stored

    options = Options(runs, store, log=tuple(service.value for service in services))
    number = log_stored(study, options, Steps("trial"))
    tell(f"logged {number} trials")
    for command in followed(options):
        tell(f"View the log with: {command}")


def abandon(
    study: StudyArgument,
    row: Annotated[
        int | None,
        typer.Option("--row", min=0, help="Only the failed trials of this row."),
    ] = None,
    undo: Annotated[
        bool,
        typer.Option("--undo", help="Take it back: the next run tries them again."),
    ] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Say that no run is to try the failed trials of a study again.

    Use it for a failure that comes back each time. The row has no verdict then, because
    a mean over the other seeds may leave out the worse ones.
    """
    from ablate.errors import AblateError
    from ablate.store.reader import Reader
    from ablate.store.writer import Writer

    url = url_of(store, runs)
    with Reader(url) as reader:
        # It raises if there is no such study.
        reader.studies.get(study)
        rows = {trial.row for trial in reader.trials.of(study)}
    if row is not None and row not in rows:
        listed = ", ".join(map(str, sorted(rows)))
        raise AblateError(f"{study} has no trials in row {row}; its rows are {listed}")
    with Writer(url) as writer:
        number = writer.abandon(study, row, undo=undo)
    kind = "abandoned" if undo else "failed"
    if not number:
        where = study if row is None else f"row {row} of {study}"
        raise AblateError(f"{where} has no {kind} trial; see: ablate status {study}")
    trials = f"{number} trial{'' if number == 1 else 's'}"
    if undo:
        tell(f"The next run of {study} tries {trials} again.")
    else:
        tell(f"No run tries {trials} of {study} again. To take it back, add --undo.")


def import_(
    other: Annotated[
        str,
        typer.Argument(
            metavar="STORE",
            help="The other store: a database URL, SQLite file, or runs folder.",
        ),
    ],
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STUDY]...", help="Studies to import. [default: all]"),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Import studies from another store.

    A trial that has a result in both stores keeps the result of your store.
    """
    from ablate.store.other_store import import_studies

    if Path(other).is_dir():
        other = url_of("", Path(other))
    merged = import_studies(other, url_of(store, runs), studies or ())
    names = ", ".join(merged.studies) or "no new study"
    tell(
        f"{names}: {merged.trials} trials with a result were imported, {merged.known}"
        " were already here."
    )
