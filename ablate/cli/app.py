"""The command `ablate` and its verbs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ablate.cli.verbs import GROUPS, USUAL, Verb

# Whether the list of verbs is to show all of them.
ALL = "all"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends an interruption with a message. Typer would end it without one."""
    try:
        yield
    except KeyboardInterrupt:
        from ablate.cli.output import tell

        tell("interrupted")
        raise typer.Exit(130) from None


class _Grouped(TyperGroup):
    """Lists the verbs by what they are for, and says when one is interrupted."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Parses the words of the command line."""
        with _interruptible():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Runs a verb."""
        with _interruptible():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shows_all = bool(ctx.meta.get(ALL))
        groups = {
            title: [verb for verb in verbs if shows_all or verb.name in USUAL]
            for title, verbs in GROUPS.items()
        }
        listed = [verb.name for verbs in groups.values() for verb in verbs]
        widest = max(map(len, listed))
        for title, verbs in groups.items():
            if not verbs:
                continue
            with formatter.section(title):
                # Equal widths align the lines of all groups.
                rows = [(verb.name.ljust(widest), verb.line) for verb in verbs]
                formatter.write_dl(rows)
        formatter.write_paragraph()
        if shows_all:
            formatter.write_text("Help on one of them: ablate help VERB")
            return
        others = len(self.commands) - len(listed) - 1
        formatter.write_text(
            f"{others} other verbs: ablate help all. Help on one: ablate help VERB"
        )


app = typer.Typer(
    cls=_Grouped,
    help=(
        "Run ablation studies declared in YAML: train each trial exactly once, and show"
        " which parts of an architecture are worth their cost."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        from ablate.errors import AblateError
        from ablate.machine.provenance import DISTRIBUTION, installed_version

        if not installed_version():
            raise AblateError(
                f"{DISTRIBUTION} is not installed; in a checkout, type: make"
            )
        print(f"ablate {installed_version()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass


def _add(group: typer.Typer, verb: Verb) -> None:
    """Adds a verb, and those below it."""
    if not verb.actions:
        group.command(name=verb.name, short_help=verb.line, epilog=verb.epilog)(
            verb.function
        )
        return
    below = typer.Typer(rich_markup_mode=None)
    below.callback(epilog=verb.epilog)(verb.function)
    for action in verb.actions:
        _add(below, action)
    group.add_typer(below, name=verb.name, short_help=verb.line)


for _verb in itertools.chain.from_iterable(GROUPS.values()):
    _add(app, _verb)


@app.command(name="help", hidden=True, short_help="Show the help of a verb.")
def _help(
    context: typer.Context,
    verb: Annotated[
        str | None, typer.Argument(metavar="[VERB|all]", help="A verb, or all.")
    ] = None,
) -> None:
    """Show the help of a verb, or the list of all verbs."""
    from ablate.errors import UnknownName, unknown

    group: Any = command()
    parent: Any = context.parent
    if verb in (None, ALL):
        parent.meta[ALL] = verb == ALL
        print(group.get_help(parent))
        return
    if verb not in group.commands:
        raise UnknownName(unknown("verb", str(verb), [*group.commands, ALL]))
    chosen = group.commands[verb]
    print(
        chosen.get_help(chosen.make_context(verb, [], parent, resilient_parsing=True))
    )


@cache
def command() -> Callable[..., Any]:
    """The verbs with their options. A process builds them once, from type hints."""
    return typer.main.get_command(app)
