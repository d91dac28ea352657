"""What a proposal to a chain is: a commit, or levels of a space.

Each kind says what identifies a proposal, what finds it again later, and which study
compares two of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ablate import pipeline, space
from ablate.errors import AblateError, SpaceError
from ablate.identity import canonical_json
from ablate.own import registry
from ablate.own.commits import PATCHES, WORKTREE, Tree
from ablate.parts import Trainer, trainer_named
from ablate.records import Declared, Level, Plan, Proposal, Space
from ablate.space.comparison import comparison
from ablate.space.listed import listed, refuse_excluded
from ablate.space.typed import levels_of, parts_of
from ablate.store.declarations import key_of_trial
from ablate.text.advice import option

# Characters of a commit in tables.
SHOWN = 12


@dataclass(frozen=True)
class Proposed:
    """What is proposed.

    Attributes:
        name: as it was typed.
        identity: equal for proposals that train the same.
        source: what finds it again: the commit, or all levels as JSON.
    """

    name: str
    identity: str
    source: str


class Kind(Protocol):
    """What a chain compares that trains its proposals."""

    def first(self, name: str) -> Proposed:
        """Returns the first baseline. Raises AblateError if it cannot be trained."""

    def read(self, name: str, base: Proposal) -> Proposed:
        """Returns a proposal.

        Args:
            base: the present baseline.

        Raises:
            AblateError: it or the baseline cannot be trained, or what holds for the whole
                chain has changed.
        """

    def study(
        self, name: str, sources: Sequence[str], seeds: int | Sequence[int]
    ) -> Space:
        """Returns the study that compares the others with the first one."""


class Commits:
    """Commits of the repository of a command."""

    def __init__(self, chain: str, declared: Declared) -> None:
        self._chain, self._declared = chain, declared

    def first(self, name: str) -> Proposed:
        tree = _tree(trainer_named(self._declared.trainer), name)
        return Proposed(name=name, identity=tree.identity, source=tree.commit)

    def read(self, name: str, base: Proposal) -> Proposed:
        trainer = self._trainer()
        tree = _tree(trainer, name)
        try:
            trainer.tree(base.source)
        except AblateError as error:
            raise AblateError(
                f"the baseline {base.name} of the chain, commit {base.source[:SHOWN]},"
                f" cannot be trained here: {error}. Propose in the repository of the chain,"
                " or fetch the commit"
            ) from None
        return Proposed(name=name, identity=tree.identity, source=tree.commit)

    def study(
        self, name: str, sources: Sequence[str], seeds: int | Sequence[int]
    ) -> Space:
        self._trainer()
        declared = self._declared
        text = comparison(
            [commit[:SHOWN] for commit in sources],
            trainer_named(declared.trainer),
            name=name,
            seeds=seeds,
            epochs=declared.epochs,
            metric=declared.metric,
            settings=declared.settings,
        )
        return space.load(text, name)

    def _trainer(self) -> Trainer:
        """Returns the command of the chain.

        Raises:
            AblateError: it is not loaded, or is no longer what the chain was made with.
        """
        declared = self._declared
        if declared.trainer not in registry.of_kind("trainer"):
            raise AblateError(
                f"the chain {self._chain} trains with {declared.trainer}; name the file"
                f" that declares it: {option('with')} FILE"
            )
        trainer = trainer_named(declared.trainer)
        if registry.meaning_of_declaration(trainer) != declared.declaration:
            raise AblateError(
                f"the file that declares {declared.trainer}, or a module that it imports,"
                f" has changed since the chain {self._chain} was made, so its results could"
                " not be compared; undo the change, or make another chain"
            )
        return trainer


def _tree(trainer: Trainer, name: str) -> Tree:
    """Returns the files of a commit.

    Raises:
        AblateError: it is no commit, so that it could not be found again later.
    """
    if name == WORKTREE or name.endswith(PATCHES):
        raise AblateError(
            f"{name}: a proposal is a commit, so that it can become the baseline; commit"
            " your changes, and propose HEAD"
        )
    return trainer.tree(name)


class Levels:
    """Levels of a space: a proposal changes some of those of the present baseline.

    Args:
        url: the store, which may know the costs of networks.
    """

    def __init__(self, chain: str, declared: Declared, url: str) -> None:
        self._chain, self._declared, self._url = chain, declared, url

    def first(self, name: str) -> Proposed:
        source = _source(self._declared.settings)
        plan = self._plan([source], name)
        return Proposed(name=name, identity=_identity(plan, 0, name), source=source)

    def read(self, name: str, base: Proposal) -> Proposed:
        before = json.loads(base.source)
        change = levels_of(parts_of(name), "proposal")
        levels = {**before, **change}
        if canonical_json(levels) == canonical_json(before):
            return Proposed(name=name, identity=base.identity, source=base.source)
        source = _source(levels)
        plan = self._plan([base.source, source], name)
        if _identity(plan, 0, base.name) != base.identity:
            raise AblateError(
                f"what trains the baseline {base.name} has changed since it was proposed:"
                " a part of your own, the data, or a rule of ablate. Its results could not"
                f" be compared; undo the change, or make another chain than {self._chain}"
            )
        repeats = plan.cells[1].same_as is not None
        identity = base.identity if repeats else _identity(plan, 1, name)
        return Proposed(name=name, identity=identity, source=source)

    def study(
        self, name: str, sources: Sequence[str], seeds: int | Sequence[int]
    ) -> Space:
        rows = [json.loads(source) for source in sources]
        refuse_excluded(self._declared.space, rows[-1])
        return space.load(listed(self._declared.space, name, rows, seeds), name)

    def _plan(self, sources: Sequence[str], name: str) -> Plan:
        """Returns the plan of a study of rows.

        Raises:
            AblateError: a level is not allowed.
        """
        try:
            study = self.study(self._chain, sources, self._declared.most)
        except SpaceError as error:
            # The lines are those of a text that no file has.
            problems = [replace(each, file=name, line=0) for each in error.problems]
            raise SpaceError(dict.fromkeys(problems)) from None
        return pipeline.cost_plan(study, self._url)


def _source(levels: Mapping[str, Level]) -> str:
    return json.dumps(dict(sorted(levels.items())), ensure_ascii=False)


def _identity(plan: Plan, row: int, name: str) -> str:
    """Returns what identifies a row. Raises AblateError if it cannot be trained."""
    cell = plan.cells[row]
    if not cell.trials:
        raise AblateError(f"{name} cannot be trained: {cell.note}")
    return key_of_trial(cell.trials[0])
