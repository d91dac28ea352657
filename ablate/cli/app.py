"""The verbs, in the order in which `ablate --help` lists them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from ablate.cli import results, spaces, training

app = typer.Typer(
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
        from ablate.provenance import DISTRIBUTION, installed_version

        if not installed_version():
            raise AblateError(
                f"{DISTRIBUTION} is not installed; in a checkout type: make setup"
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


VERBS: tuple[Callable[..., None], ...] = (
    spaces.init,
    training.run,
    training.resume,
    spaces.plan,
    spaces.cost,
    results.status,
    results.table,
    results.effects,
    results.pareto,
    results.plot,
    results.report,
    results.review,
    results.dashboard,
    results.query,
    results.export,
    results.disk,
    results.import_,
    training.reproduce,
    training.diagnose,
    spaces.check,
    spaces.factors,
    spaces.backbones,
    spaces.schema,
    spaces.verify_costs,
    spaces.doctor,
)
for verb in VERBS:
    # `import_` and `verify_costs` become `import` and `verify-costs`.
    app.command(name=verb.__name__.rstrip("_").replace("_", "-"))(verb)


@cache
def command() -> Callable[..., Any]:
    """The verbs with their options. A process builds them once, from type hints."""
    return typer.main.get_command(app)
