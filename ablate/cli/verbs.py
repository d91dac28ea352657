"""The verbs by what they are for, each with one line and examples for its help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ablate.cli import (
    agents,
    chain,
    compare,
    elsewhere,
    gate,
    results,
    spaces,
    stores,
    studies,
    training,
)


@dataclass(frozen=True)
class Verb:
    """One command.

    Attributes:
        function: does it; its docstring and arguments are the help.
        line: what the list of all verbs says; it fits beside the name in 80 columns.
        examples: commands, without `ablate`.
        actions: the verbs below it, as `begin` of `ablate chain begin`.
    """

    function: Callable[..., None]
    line: str
    examples: tuple[str, ...] = ()
    actions: tuple[Verb, ...] = ()

    @property
    def name(self) -> str:
        """The word that is typed: `verify-costs` for the function `verify_costs`."""
        return self.function.__name__.rstrip("_").replace("_", "-")

    @property
    def epilog(self) -> str | None:
        """The end of its help."""
        if not self.examples:
            return None
        # The first character keeps the lines of the paragraph as they are.
        lines = [f"  ablate {example}" for example in self.examples]
        return "\n".join(["\b", "Examples:", *lines])


# The verbs that `ablate --help` shows; `ablate help all` shows the others, too.
USUAL = frozenset(
    (
        "init",
        "plan",
        "run",
        "try",
        "resume",
        "status",
        "logs",
        "table",
        "plot",
        "dashboard",
        "effects",
        "report",
    )
)

GROUPS: dict[str, tuple[Verb, ...]] = {
    "Run": (
        Verb(
            spaces.init,
            "Write a space to start from.",
            ("init mine", "init --list", "init --example augvit/table3-small"),
        ),
        Verb(
            spaces.plan,
            "Show what a space would train, its cost and its time.",
            ("plan mine.yaml", "plan mine.yaml --until-decided 12"),
        ),
        Verb(
            training.run,
            "Train the trials that have no result yet, and print the table.",
            (
                "run mine.yaml",
                "run mine.yaml --until-decided 12",
                "run mine.yaml --gpus 1",
                "run mine.yaml --max-hours 8 --max-trials 200",
            ),
        ),
        Verb(
            compare.compare,
            "Train commits with the same seeds: is one better than noise?",
            (
                "compare main my-branch --with mine.py --seeds 5",
                "compare main my.patch worktree --with mine.py",
                "compare mine space",
            ),
        ),
        Verb(
            training.try_,
            "Train one trial here, with its output; store nothing.",
            (
                "try mine.yaml",
                "try mine.yaml --row 2 --seed 1 --epochs 1 --pdb",
                "try mine.yaml --profile trace.json",
            ),
        ),
        Verb(
            training.resume,
            "Continue a study where it stopped.",
            ("resume", "resume mine"),
        ),
        Verb(
            stores.abandon,
            "Stop trying trials that fail each time.",
            ("abandon mine", "abandon mine --row 3", "abandon mine --row 3 --undo"),
        ),
        Verb(
            training.diagnose,
            "Measure diagnostics inside trained networks.",
            ("diagnose mine", "diagnose mine --name token_similarity"),
        ),
        Verb(
            agents.mcp,
            "Give research agents tools to run studies in a budget.",
            ("mcp --runs agents --max-hours 8 --max-trials 200",),
        ),
        Verb(
            training.reproduce,
            "Train a stored trial again and compare the result.",
            ("reproduce 1f0c9a",),
        ),
    ),
    "Look": (
        Verb(
            results.status,
            "Show the progress of studies.",
            ("status", "status mine", "status --error-budget"),
        ),
        Verb(
            results.logs,
            "Show what trials print.",
            ("logs mine --row 2 --seed 0", "logs mine --follow"),
        ),
        Verb(
            results.table,
            "Print a study: mean ± sd, difference from row 0, cost.",
            ("table mine", "table mine --format latex > table.tex"),
        ),
        Verb(
            elsewhere.judge,
            "Judge runs that were trained elsewhere: more than noise?",
            (
                "judge results.csv --baseline norm=layer",
                "judge tensorboard --names '{norm}-{seed}' --baseline norm=layer",
                "judge results.csv --baseline norm=layer --keep --name norms",
                "judge results.csv --target 70",
            ),
        ),
        Verb(
            results.plot,
            "Draw effects, curves, the Pareto front and more.",
            (
                "plot mine --to effects.pdf",
                "plot mine --of curves --to curves.svg",
                "plot mine --of metric --by shortcuts.count --to levels.pdf",
            ),
        ),
        Verb(
            results.dashboard,
            "Serve pages to explore studies while they run.",
            ("dashboard",),
        ),
        Verb(
            stores.query,
            "Run a read-only SQL query on the store.",
            ("query 'SELECT * FROM study_results LIMIT 5'",),
        ),
    ),
    "Explain": (
        Verb(
            results.effects,
            "Print verdicts: helps, hurts, no difference, inconclusive.",
            ("effects mine", "effects mine --of factors", "effects mine --of images"),
        ),
        Verb(
            gate.gate,
            "Exit with a code for the verdict on one row, for scripts.",
            (
                "gate mine --row 2",
                "gate mine --row 2 --project",
            ),
        ),
        Verb(
            chain.chain,
            "Accept changes one after another, on evidence.",
            (
                "chain begin ours main --with mine.py",
                "chain propose ours my-branch --with mine.py",
                "chain begin parts mine.yaml",
                "chain propose parts ffn.kernel=3",
                "chain propose runs rmsnorm --reported 0=3.25",
                "chain confirm ours --with mine.py",
            ),
            (
                Verb(chain.begin, "Begin a chain with its first baseline."),
                Verb(chain.propose, "Propose a change: keep, discard, or more seeds."),
                Verb(chain.confirm, "Compare the baseline with the first one, afresh."),
                Verb(chain.withdraw, "Discard the open proposal."),
                Verb(chain.list_, "List the proposals."),
            ),
        ),
        Verb(
            results.pareto,
            "List the cells that no other cell dominates.",
            ("pareto mine",),
        ),
        Verb(
            results.review,
            "List what a referee would object to, and what fixes it.",
            ("review mine",),
        ),
    ),
    "Share": (
        Verb(
            results.report,
            "Write one HTML file with verdicts, tables and figures.",
            ("report mine", "report mine --to mine.html --interactive"),
        ),
        Verb(
            stores.export,
            "Write trials to a file, Optuna or TensorBoard.",
            (
                "export mine --to mine.parquet",
                "export --all --to all.parquet",
                "export mine --optuna sqlite:///optuna.db",
                "export mine --log tensorboard",
            ),
        ),
        Verb(
            studies.study,
            "Note, tag, archive, rename or delete a study.",
            (
                "study note mine 'seed 3 ran on another machine'",
                "study tag mine 'paper, draft'",
                "study archive mine",
                "study archive mine --undo",
            ),
        ),
        Verb(
            stores.import_,
            "Import studies from another store.",
            ("import other/ablate.db", "import other/ablate.db mine"),
        ),
    ),
    "Inspect": (
        Verb(
            spaces.cost,
            "Count parameters, FLOPs and activations.",
            ("cost mine.yaml", "cost --model deit_small_patch16_224 --operators"),
        ),
        Verb(
            spaces.factors,
            "List factors with their levels, papers and claims.",
            ("factors", "factors shortcuts"),
        ),
        Verb(
            spaces.backbones,
            "List backbones and the factors that they support.",
            ("backbones", "backbones swin"),
        ),
        Verb(
            spaces.schema,
            "Print the JSON Schema of a space.",
            ("schema > space.schema.json",),
        ),
        Verb(
            spaces.check,
            "Check parts of your own.",
            ("check mine.py",),
        ),
        Verb(
            stores.disk,
            "Show the disk space of checkpoints, and free some.",
            ("disk", "disk --free finished"),
        ),
        Verb(
            spaces.verify_costs,
            "Count all costs that the five papers print, and compare.",
            ("verify-costs", "verify-costs iffn"),
        ),
        Verb(
            spaces.doctor,
            "Check whether this machine is set up.",
            ("doctor",),
        ),
    ),
}
