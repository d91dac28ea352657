"""The verbs."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.output import Format, duration, show

if TYPE_CHECKING:
    from ablate.pipeline import Options, Outcome

app = typer.Typer(
    help="Which part of an architecture earns its cost: declared ablations, exactly-once trials, honest tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


class ExecutorName(StrEnum):
    """How trials run."""

    ray = "ray"
    inline = "inline"


FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A search space (YAML).")]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Name of a study; `ablate status` lists them.")]
StoreOption = Annotated[
    str, typer.Option("--store", metavar="URL", help="Database URL or SQLite file. [default: RUNS/ablate.db]")
]
RunsOption = Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder of the store and the checkpoints.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print.")]
ExecutorOption = Annotated[
    ExecutorName, typer.Option("--executor", help="ray: all cores; inline: in this process, one trial at a time.")
]
CpusOption = Annotated[int | None, typer.Option("--cpus", min=1, help="CPUs to use. [default: all]")]
GpusOption = Annotated[int | None, typer.Option("--gpus", min=0, help="GPUs to use. [default: all]")]
AddressOption = Annotated[
    str,
    typer.Option("--ray-address", metavar="ADDRESS", help="Join a Ray cluster: HOST:PORT, or auto. [default: a Ray of its own]"),
]
CheckpointsOption = Annotated[
    str, typer.Option("--checkpoints", metavar="URL", help="Folder or URL that all nodes share. [default: RUNS/checkpoints]")
]

DEFAULT_RUNS = Path("runs")


def _url(store: str, runs: Path = DEFAULT_RUNS) -> str:
    from ablate.pipeline import Options

    return Options(runs=runs, store=store).url


def _where(store: str, runs: Path) -> str:
    """What to add to a command so that it finds the same store."""
    return (f" --runs {runs}" if runs != DEFAULT_RUNS else "") + (f" --store {store}" if store else "")


@app.command()
def run(
    file: FileArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    executor: ExecutorOption = ExecutorName.ray,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    ray_address: AddressOption = "",
    checkpoints: CheckpointsOption = "",
    until_decided: Annotated[
        int | None,
        typer.Option(
            "--until-decided", metavar="SEEDS", min=3, help="Add seeds where nothing can be said yet, up to so many a cell."
        ),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Train what is not known yet of a search space, and print its table."""
    from ablate import space
    from ablate.pipeline import Options

    options = Options(runs, store, executor.value, cpus, gpus, ray_address, checkpoints)
    _train(lambda hooks: _run_space(space.read(file, until_decided), file, options, hooks), options, form)


def _run_space(declared: Any, file: Path, options: Options, hooks: Any) -> Outcome:
    from ablate import pipeline

    return pipeline.run(declared, str(file), options, hooks)


@app.command()
def resume(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Name of a study. [default: the last unfinished]")
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    executor: ExecutorOption = ExecutorName.ray,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    ray_address: AddressOption = "",
    checkpoints: CheckpointsOption = "",
    form: FormatOption = Format.table,
) -> None:
    """Finish what was not finished of a study, from its last checkpoints, and print its table."""
    from ablate import pipeline

    options = pipeline.Options(runs, store, executor.value, cpus, gpus, ray_address, checkpoints)
    _train(lambda hooks: pipeline.resume(study, options, hooks), options, form)


def _train(start: Any, options: Options, form: Format) -> None:
    """Runs with progress, prints the table, and says what to do next."""
    from ablate import pipeline
    from ablate.cli.progress import Progress
    from ablate.study import Study

    with Progress() as progress:
        outcome = start(pipeline.Hooks(progress.planned, progress.proposed, progress.event, progress.stop))
    where = _where(options.store, options.runs)
    kept = where + (f" --checkpoints {options.checkpoints}" if options.checkpoints else "")
    kept += f" --executor {options.executor}" if options.executor != "ray" else ""
    joined = f" --ray-address {options.ray_address}" if options.ray_address else ""
    if outcome.interrupted:
        done = outcome.trials - outcome.unfinished - outcome.failed
        print(
            f"Interrupted: {done} of {outcome.trials} trials done. Go on with: ablate resume {outcome.study}{kept}{joined}",
            file=sys.stderr,
        )
        raise typer.Exit(130)
    show(Study(outcome.study, options.url).grid(), form.value)
    if outcome.undiagnosed:
        print(
            f"{outcome.undiagnosed} trials were known before; look inside them with: ablate diagnose {outcome.study}{kept}",
            file=sys.stderr,
        )
    done = f"{outcome.trained} trials trained, {outcome.known_before} known before"
    if outcome.failed:
        print(f"{done}, {outcome.failed} failed: ablate status {outcome.study}{where}", file=sys.stderr)
        raise typer.Exit(1)
    print(f"{done}. Next: ablate effects {outcome.study}{where}", file=sys.stderr)


@app.command()
def plan(
    file: FileArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    cpus: CpusOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Show what a search space would train: cells, cost, duplicates, impossible cells, time. Trains nothing."""
    from ablate import pipeline, space
    from ablate.cli.grids import plan_grid

    options = pipeline.Options(runs, store, cpus=cpus)
    shown = pipeline.preview(space.read(file), options.url, options)
    show(plan_grid(shown), form.value)
    if form == Format.table:
        known = len(shown.plan.trials) - len(shown.to_train)
        print(f"{len(shown.plan.trials)} trials: {known} known, {len(shown.to_train)} to train, about {duration(shown.seconds)}.")
        if shown.more != 0:
            print(
                f"{'As many as there are' if shown.more is None else f'{shown.more} more cells'} will be proposed from results."
            )


@app.command()
def cost(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A search space (YAML): the cost of each of its cells.")
    ] = None,
    model: Annotated[str | None, typer.Option("--model", metavar="NAME", help="One model: timm's name of a ViT or DeiT.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="FACTOR=LEVEL", help="A factor's level, with --model; repeatable.")
    ] = None,
    image_size: Annotated[
        int | None, typer.Option("--image-size", min=1, help="Side of the image, with --model. [default: the model's]")
    ] = None,
    classes: Annotated[
        int | None, typer.Option("--classes", min=1, help="Number of classes, with --model. [default: 1000]")
    ] = None,
    timing: Annotated[bool, typer.Option("--timing", help="Measure latency and throughput on this machine too.")] = False,
    operators: Annotated[bool, typer.Option("--operators", help="FLOPs by operator, with --model.")] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Parameters, FLOPs and activations of every cell of a space, or of one model. Needs no files of a known data set."""
    from ablate.cli import grids
    from ablate.errors import AblateError

    if (file is None) == (model is None):
        raise AblateError("name a search space or a model: `ablate cost FILE`, or `ablate cost --model deit_small_patch16_224`")
    if file is not None:
        if settings or image_size or classes or operators:
            raise AblateError(
                "--set, --image-size, --classes and --operators go with --model; in a search space, write them in the file"
            )
        show(grids.space_cost_grid(file, _url(store, runs), timing), form.value)
        return
    assert model is not None
    if operators and timing:
        raise AblateError("--operators and --timing are two questions; ask one at a time")
    architecture = grids.one_architecture(model, settings or [], image_size, classes or 1000)
    show(grids.operators_grid(architecture) if operators else grids.model_cost_grid(architecture, timing), form.value)


@app.command()
def table(
    study: StudyArgument,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
    group: Annotated[str, typer.Option("--group", metavar="FACTOR", help="Rows of equal levels of it stand together.")] = "",
    published: Annotated[
        bool, typer.Option("--published", help="The paper's top-1 in a column of its own, for a study that names its table.")
    ] = False,
) -> None:
    """The table of a study: mean ± sd over seeds, difference to the first row, cost; the best in bold."""
    from ablate.study import Study

    show(Study(study, _url(store, runs)).grid(published=published, group=group), form.value)


class Kind(StrEnum):
    """Effects of what."""

    rows = "rows"
    controls = "controls"
    factors = "factors"
    interactions = "interactions"
    contributions = "contributions"
    importance = "importance"


@app.command()
def effects(
    study: StudyArgument,
    kind: Annotated[
        Kind,
        typer.Option(
            "--of",
            help="rows: each against the first; controls: each against the baseline of its cost; factors: main effects; "
            "interactions: of two factors; contributions: alone, left out, Shapley; importance: for searches.",
        ),
    ] = Kind.rows,
    margin: Annotated[
        float | None, typer.Option("--margin", min=0, help="Least difference that counts. [default: the study's]")
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """What helps, what hurts, what makes no difference, and what cannot be told yet: paired over seeds, with intervals."""
    from ablate.study import Study

    show(Study(study, _url(store, runs)).effects_grid(kind.value, margin), form.value)


@app.command()
def review(
    study: StudyArgument, store: StoreOption = "", runs: RunsOption = DEFAULT_RUNS, form: FormatOption = Format.table
) -> None:
    """What a sceptical referee would object to, each with the command that mends it. Ends with 1 where there is something."""
    from ablate.cli.inside import reviewed

    grid = reviewed(study, _url(store, runs), _where(store, runs))
    show(grid, form.value)
    if grid.rows:
        raise typer.Exit(1)


@app.command()
def reproduce(
    trial: Annotated[
        str, typer.Argument(metavar="TRIAL", help="A completed trial's hash, or its beginning; see `ablate status`.")
    ],
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Train a stored trial again, and say whether it came out the same. Ends with 1 where it did not; writes nothing."""
    from ablate.cli.inside import reproduced
    from ablate.pipeline import Options

    if not reproduced(trial, Options(runs, store)):
        raise typer.Exit(1)


@app.command(name="verify-costs")
def verify_costs(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAPER|TABLE]...", help="Papers or tables, as augvit or iffn/table2. [default: all]"),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Count every printed parameter and FLOP of the five papers again, and say where the print differs, and why."""
    from ablate.cli.inside import verified

    grid, unexplained = verified(tuple(tables or ()))
    show(grid, form.value)
    if unexplained:
        raise typer.Exit(1)


@app.command()
def diagnose(
    targets: Annotated[list[str], typer.Argument(metavar="STUDY|TRIAL...", help="Studies, or trials by their hash.")],
    names: Annotated[
        list[str] | None, typer.Option("--name", help="A diagnostic; repeatable. [default: all that are cheap]")
    ] = None,
    images: Annotated[int, typer.Option("--images", min=1, help="On how many test images.")] = 64,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    checkpoints: CheckpointsOption = "",
    form: FormatOption = Format.table,
) -> None:
    """Look inside trained networks, from their checkpoints: by layer, stored, and printed."""
    from ablate import pipeline
    from ablate.cli.inside import diagnosed

    for grid in diagnosed(tuple(targets), tuple(names or ()), images, pipeline.Options(runs, store, checkpoints=checkpoints)):
        show(grid, form.value)


class Drawn(StrEnum):
    """What is drawn."""

    effects = "effects"
    factors = "factors"
    interactions = "interactions"
    contributions = "contributions"
    pareto = "pareto"
    curves = "curves"
    importance = "importance"
    parallel = "parallel"


@app.command()
def plot(
    study: StudyArgument,
    to: Annotated[Path, typer.Option("--to", metavar="FILE", help="Figure to write: .svg, .png, .pdf, or .html to zoom in.")],
    of: Annotated[Drawn, typer.Option("--of", help="What to draw.")] = Drawn.effects,
    diagnostic: Annotated[str, typer.Option("--diagnostic", help="Instead: a stored diagnostic, by layer.")] = "",
    rows: Annotated[
        list[int] | None, typer.Option("--row", help="Of curves and diagnostics: a row of the table; repeatable. [default: all]")
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", help="Of curves: top1, top5, loss or train_loss. [default: the study's]")
    ] = "",
    cost: Annotated[str, typer.Option("--cost", help="Of pareto: flops, params or activations.")] = "flops",
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Draw effects, interactions, the Pareto front, learning curves, importance, parallel coordinates, or a diagnostic by
    layer."""
    from ablate.cli.inside import drawn, drawn_layers

    if diagnostic:
        drawn_layers(study, diagnostic, to, rows, _url(store, runs))
    else:
        drawn(study, of.value, to, rows, metric, cost, _url(store, runs))
    print(f"wrote {to}", file=sys.stderr)


@app.command()
def report(
    study: StudyArgument,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="HTML file to write. [default: STUDY.html]")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Figures that can be zoomed (5 MB more).")] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write one HTML file with question, verdicts, tables, figures, findings, cost and provenance. It opens without a network."""
    from ablate.errors import AblateError
    from ablate.page import write_page
    from ablate.study import Study

    file = to or Path(study.replace("/", "-") + ".html")
    if file.suffix != ".html":
        raise AblateError(f"{file}: a report is an HTML file; name one like {file.with_suffix('.html')}")
    write_page(Study(study, _url(store, runs)), file, interactive=interactive, where=_where(store, runs))
    print(f"wrote {file}", file=sys.stderr)


@app.command()
def dashboard(
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; others than loopback need --token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535)] = 8501,
    token: Annotated[str, typer.Option("--token", metavar="WORD", help="Ask visitors for it; NEW makes one up.")] = "",
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
) -> None:
    """Pages to explore studies, live while they run. Reads only, and listens on this machine only."""
    from ablate.cli.serve import serve

    raise typer.Exit(serve(_url(store, runs), _where(store, runs), host, port, token, browser))


@app.command()
def backbones(
    family: Annotated[
        str | None, typer.Argument(metavar="[FAMILY]", help="One family, with all its names. [default: all]")
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Which backbones there are, and which factors are defined on them."""
    from ablate.cli.grids import backbones_grid

    show(backbones_grid(family), form.value)


@app.command()
def status(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="One study, trial by trial. [default: all studies]")
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """How far studies are."""
    from ablate.cli.grids import studies_grid, trials_grid

    show(trials_grid(study, _url(store, runs)) if study else studies_grid(_url(store, runs)), form.value)


@app.command()
def pareto(
    study: StudyArgument,
    objectives: Annotated[
        list[str] | None,
        typer.Option(
            "--objective", metavar="NAME=max|min", help="Repeatable. [default: the study's; of a design: its metric, flops]"
        ),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="The hypervolume, cell by cell.")] = False,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Which cells no other cell beats in every respect, and the hypervolume that they cover."""
    from ablate.study import Study

    show(Study(study, _url(store, runs)).pareto(objectives or (), history=history), form.value)


@app.command()
def export(
    study: StudyArgument,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="One row a trial: .parquet, .csv or .json.", show_default=False)
    ] = None,
    optuna: Annotated[
        str, typer.Option("--optuna", metavar="URL", help="Or the cells, to an Optuna storage, as sqlite:///optuna.db.")
    ] = "",
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Write a study's trials to a file for pandas and others, or its cells to Optuna and its dashboard."""
    from ablate.errors import AblateError
    from ablate.study import Study

    if (to is None) == (not optuna):
        raise AblateError(
            f"say where to: ablate export {study} --to {study.replace('/', '-')}.parquet, or --optuna sqlite:///optuna.db"
        )
    found = Study(study, _url(store, runs))
    if to is not None:
        print(f"wrote {found.export(to)} trials to {to}", file=sys.stderr)
        return
    written = found.export_optuna(optuna)
    print(f"wrote {written} cells. Look at them with: optuna-dashboard {optuna}", file=sys.stderr)


@app.command(name="import")
def import_(
    other: Annotated[str, typer.Argument(metavar="STORE", help="The other store: a database URL or SQLite file.")],
    studies: Annotated[list[str] | None, typer.Argument(metavar="[STUDY]...", help="Which studies. [default: all]")] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
) -> None:
    """Take over studies of another store: what is the same trial there and here is one trial, and keeps its result here."""
    from ablate.store.writer import Writer

    with Writer(_url(store, runs)) as writer:
        found = writer.take(other, studies or ())
    told = ", ".join(found.studies) or "no new study"
    print(f"{told}: {found.trials} trials with a result are new here, {found.known} were known.", file=sys.stderr)


@app.command()
def query(
    statement: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT over the tables and views; docs/sql.md lists them.")
    ],
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    form: FormatOption = Format.table,
) -> None:
    """Ask the store in SQL. Nothing can be written."""
    from ablate.errors import AblateError
    from ablate.report.grid import Grid, plain
    from ablate.store.reader import Reader

    with Reader(_url(store, runs)) as reader:
        columns, rows = reader.query(statement)
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise AblateError(f"the query gives the column '{twice[0]}' twice; name them apart with AS")
    data = [dict(zip(columns, row, strict=True)) for row in rows]
    show(plain(data) if data else Grid(columns, [], []), form.value)


@app.command()
def factors(
    name: Annotated[str | None, typer.Argument(metavar="[FACTOR]", help="One factor. [default: all]")] = None,
    form: FormatOption = Format.table,
) -> None:
    """What can vary: every factor with its levels, paper and claim."""
    from ablate.cli.grids import factors_grid

    show(factors_grid(name), form.value)


@app.command()
def schema() -> None:
    """The JSON Schema of a search space, for editors: `ablate schema > space.schema.json`."""
    import json

    from ablate.space import json_schema

    print(json.dumps(json_schema(), indent=1))


@app.command()
def doctor(store: StoreOption = "", runs: RunsOption = DEFAULT_RUNS, form: FormatOption = Format.table) -> None:
    """Whether this machine is set up."""
    from ablate.cli.doctor import examine
    from ablate.report.grid import Grid

    findings = examine(_url(store, runs), runs)
    rows = [[finding.what, "ok" if finding.ok else "PROBLEM", finding.found] for finding in findings]
    data = [{"what": f.what, "ok": f.ok, "found": f.found} for f in findings]
    show(Grid(["what", "state", "found"], rows, data), form.value)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
