"""Verbs that train, and verbs that inspect trained networks."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ablate.cli.options import (
    DEFAULT_RUNS,
    CheckpointsOption,
    FileArgument,
    FormatOption,
    RunsOption,
    StoreOption,
    UntilDecidedOption,
    WithOption,
    followed,
    with_run_options,
)
from ablate.cli.output import Format, Steps, say, show, tell
from ablate.records import MOST_WHOLE
from ablate.text import advice

if TYPE_CHECKING:
    from collections.abc import Callable

    from ablate.pipeline import Options, Outcome
    from ablate.records import Epoch
    from ablate.report.table import Table
    from ablate.results.study import Study

# The exit code of a run that its budget ended.
EXHAUSTED = 3


@with_run_options
def run(
    file: FileArgument,
    options: Options,
    until_decided: UntilDecidedOption = None,
    predicted: Annotated[
        bool,
        typer.Option(
            "--predicted",
            help="With `across`: train the size that is predicted, once the others are"
            " trained.",
        ),
    ] = False,
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Train those trials of a space that have no result yet, and print the table.

    If the file has changed since results could be seen, the run makes generation 2 of
    the study. Generation 1 stays readable as STUDY@1. Rows whose trials do not change
    keep their verdicts, and so does every row that is decided.
    """
    from ablate import space

    declared = space.read(file)
    if until_decided is not None:
        declared = space.until_decided(declared, until_decided)

    def start(hooks: Any) -> Outcome:
        from ablate import pipeline

        return pipeline.run(declared, str(file), options, hooks, predicted=predicted)

    train_and_show(start, options, form)


@with_run_options
def resume(
    options: Options,
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="Study to continue. [default: the last unfinished]"
        ),
    ] = None,
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Continue an unfinished study from its last checkpoints, and print its table."""
    from ablate import pipeline

    train_and_show(lambda hooks: pipeline.resume(study, options, hooks), options, form)


def train_and_show(
    start: Any,
    options: Options,
    form: Format,
    table: Callable[[Study], Table] | None = None,
) -> None:
    """Runs with a progress display, prints the table, and suggests the next command.

    Args:
        table: makes the table; None: that of the results.
    """
    from ablate import pipeline
    from ablate.cli.progress import Progress
    from ablate.results.study import Study

    for command in followed(options):
        tell(f"View the log with: {command}")
    with Progress() as progress:
        outcome = start(
            pipeline.Hooks(
                planned=progress.planned,
                begun=progress.begun,
                proposed=progress.proposed,
                event=progress.event,
                stop=progress.stop,
            )
        )
    study = Study(outcome.study, options.url)
    table = table or Study.results_table
    if outcome.gave_up:
        _end_hopeless(outcome)
    if outcome.interrupted:
        _end_early(study, outcome, options, form, table)
    show(table(study), form.value)
    if outcome.undiagnosed:
        look = advice.command("diagnose", outcome.study)
        tell(
            f"{outcome.undiagnosed} completed trials lack the requested diagnostics;"
            f" measure these diagnostics with: {look}"
        )
    done = f"{outcome.trained} trials trained, {outcome.known_before} known before"
    if outcome.failed:
        why = advice.command("status", outcome.study)
        logs = advice.command("logs", outcome.study)
        tell(f"{done}, {outcome.failed} failed: {why}. What they printed: {logs}")
        raise typer.Exit(1)
    if outcome.not_chosen:
        others = advice.command("resume", outcome.study)
        tell(f"{done}. {outcome.not_chosen} other trials are left for: {others}")
        return
    tell(f"{done}{_next(study)}")


def _end_hopeless(outcome: Outcome) -> NoReturn:
    """Says why the first trials were the last ones; exits."""
    again = advice.command("resume", outcome.study)
    tell(
        f"Stopped: the first {outcome.failed} trials ended in the same error before any"
        f" metric, so {outcome.unfinished} others were not tried: {outcome.gave_up}"
    )
    tell(
        f"See all of it with: {advice.command('logs', outcome.study)}. When the cause"
        f" is corrected, go on with: {again}"
    )
    raise typer.Exit(1)


def _end_early(
    study: Study,
    outcome: Outcome,
    options: Options,
    form: Format,
    table: Callable[[Study], Table],
) -> NoReturn:
    """Says how to go on after an interruption or a used-up budget; exits."""
    done = outcome.trials - outcome.unfinished - outcome.failed
    again = advice.command("resume", outcome.study)
    if not outcome.exhausted:
        tell(
            f"Interrupted: {done} of {outcome.trials} trials done. Go on with: {again}"
        )
        raise typer.Exit(130)
    show(table(study), form.value)
    limit = f"{outcome.exhausted.partition(' ')[0]} N"
    failed = f", {outcome.failed} failed" if outcome.failed else ""
    tell(
        f"The budget is used up ({outcome.exhausted}): {done} of"
        f" {outcome.trials} trials done{failed}. Go on with a larger budget:"
        f" {again} {limit}"
    )
    raise typer.Exit(EXHAUSTED)


def _next(study: Study) -> str:
    """Returns the end of the last sentence of a finished run: what to type next."""
    from ablate.report.collapse import is_near_chance

    if study.is_ladder:
        words = ("--of", "sizes", "--to", "sizes.svg")
        return f". Next: {advice.command('plot', study.name, *words)}"
    results, _ = study.read()
    if not any(cell.values for cell in results.cells):
        return (
            f"; none of them completed. See why: {advice.command('status', study.name)}"
        )
    if is_near_chance(results):
        return f". All are near chance; see: {advice.command('review', study.name)}"
    return f". Next: {advice.command('effects', study.name)}"


def try_(
    file: FileArgument,
    row: Annotated[
        int, typer.Option("--row", min=0, max=MOST_WHOLE, help="Row of the plan.")
    ] = 0,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=MOST_WHOLE,
            help="Seed of the space. [default: the first one]",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            max=MOST_WHOLE,
            help="Train so many epochs. [default: those of the recipe]",
        ),
    ] = None,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Open the debugger where training fails.")
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile",
            metavar="FILE.json",
            help="Write a trace of torch's profiler for some steps, and print where"
            " their time goes.",
        ),
    ] = None,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    own: WithOption = None,
) -> None:
    """Train one trial in this process, with its output; nothing is stored.

    A `breakpoint()` in your own code opens the debugger; in a command's script, with
    --pdb.
    """
    from ablate import space
    from ablate.errors import AblateError
    from ablate.own import mistakes
    from ablate.pipeline import Options
    from ablate.records import level_text
    from ablate.trained.foreground import (
        SKIPPED_STEPS,
        debug_command,
        find_trial,
        train,
    )

    declared = space.read(file)
    try:
        trial = find_trial(declared, Options(runs, store), row, seed)
    except AblateError as error:
        reason = mistakes.cause(error)
        if reason is None:
            raise
        # A mistake in the user's own part, which is built to plan it.
        _show_error(reason, pdb=pdb)
        tell(f"error: {error}")
        raise typer.Exit(1) from None
    levels = trial.architecture.settings
    shown = " ".join(f"{name}={level_text(level)}" for name, level in levels.items())
    tell(f"row {row}, seed {trial.seed}: {shown or trial.architecture.backbone}")
    is_command = _is_command(trial.architecture.trainer)
    if is_command and profile is not None:
        raise AblateError(
            "--profile is for training in this process; this trainer is a command"
        )
    if is_command and pdb:
        raise typer.Exit(debug_command(trial, declared, epochs=epochs))
    try:
        table = train(
            trial,
            declared,
            epochs=epochs,
            profile_to=profile,
            hear=_tell_epoch,
            hear_line=lambda line: say(line.rstrip("\n")),
        )
    except Exception as error:
        if isinstance(error, AblateError) and not pdb:
            # Its message says what is wrong.
            raise
        _show_error(error, pdb=pdb)
        raise typer.Exit(1) from None
    if profile is not None:
        if not table:
            raise AblateError(
                f"--profile: too few steps; the first {SKIPPED_STEPS} are left out, so"
                " raise --epochs, or lower recipe.batch_size"
            )
        say(table)
        tell(f"wrote {profile}; open it in https://ui.perfetto.dev or chrome://tracing")


def _show_error(error: BaseException, *, pdb: bool) -> None:
    """Prints the traceback of a user's code, and opens the debugger at its end."""
    traceback.print_exception(error)
    if pdb:
        import pdb as debugger

        debugger.post_mortem(error.__traceback__)


def _is_command(trainer: str) -> bool:
    """Whether a trainer of the user runs in a process of its own."""
    from ablate.parts import trainer_named

    return bool(trainer) and bool(trainer_named(trainer).command)


def _tell_epoch(epoch: Epoch) -> None:
    from ablate.execution.trial_log import epoch_line

    say(epoch_line(epoch))


def reproduce(
    trial: Annotated[
        str,
        typer.Argument(
            metavar="TRIAL",
            help="Hash of a completed trial, or its beginning; see `ablate status`.",
        ),
    ],
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    own: WithOption = None,
) -> None:
    """Train a stored trial again, and report whether the result is the same.

    If the result is different, the exit code is 1. Nothing is stored.
    """
    from ablate.pipeline import Options
    from ablate.trained.reproduce import reproduce as train_again

    outcome = train_again(trial, Options(runs, store), Steps("epoch"))
    for name, (before, now) in outcome.changed.items():
        say(f"{name}: {before or 'unknown'} before, {now or 'unknown'} now")
    what = (
        f"{outcome.study}, trial {outcome.trial}: {outcome.metric} {outcome.found:.6g}"
    )
    if outcome.same:
        say(f"{what}: bit-identical in all {outcome.epochs} epochs.")
        return
    where = f"from epoch {outcome.first} on" if outcome.first else "in the final test"
    if outcome.noise is None:
        noise = ""
    else:
        noise = (
            f" (two seeds differ by less than {outcome.noise:.3g} in 99 of 100 cases)"
        )
    if outcome.agrees:
        verdict = "agrees within seed noise"
    else:
        verdict = "does NOT agree"
    say(f"{what}, stored {outcome.stored:.6g}: differs {where}; {verdict}{noise}.")
    if not outcome.agrees:
        raise typer.Exit(1)


def diagnose(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="STUDY|TRIAL...", help="Studies, or trials by their hash."
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            help=(
                "A diagnostic; repeatable. [default: all but lipschitz and those that"
                " are matrices]"
            ),
        ),
    ] = None,
    images: Annotated[
        int,
        typer.Option("--images", min=1, max=MOST_WHOLE, help="Number of test images."),
    ] = 64,
    store: StoreOption = "",
    runs: RunsOption = DEFAULT_RUNS,
    checkpoints: CheckpointsOption = "",
    own: WithOption = None,
    form: FormatOption = Format.table,
) -> None:
    """Measure diagnostics of trained networks, layer by layer, from their checkpoints.

    The values are stored and printed.
    """
    from ablate import pipeline
    from ablate.cli.layers import diagnosed

    for table in diagnosed(
        tuple(targets),
        tuple(names or ()),
        images,
        pipeline.Options(runs, store, checkpoints=checkpoints),
    ):
        show(table, form.value)
