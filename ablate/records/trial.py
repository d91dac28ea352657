"""One training, its identity, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from ablate.identity import canonical_json, text_hash
from ablate.records.base import Level
from ablate.records.data import IMAGE_FILES, Data
from ablate.records.model import Architecture
from ablate.records.recipe import Recipe

# Stands in place of a file for the weights that timm publishes for a backbone.
PUBLISHED_WEIGHTS = "timm"

# What a seed decides. init: the initial weights. order: all that is drawn while training,
# such as the order of the images, augmentation and dropout. split: which training images
# are held out, and which are used if not all are.
Source: TypeAlias = Literal["init", "order", "split"]
SOURCES: tuple[Source, ...] = ("init", "order", "split")
# What a seed decides unless the space says otherwise.
VARIED: tuple[Source, ...] = ("init", "order")
# Stands in the code of a trial that was trained elsewhere, before its result. Another
# result makes another trial of the same row.
RESULT = "result"
# The seed of a source that is the same in all trials.
SHARED_SEED = 0


@dataclass(frozen=True)
class InitialWeights:
    """The weights that training begins with: those that timm publishes, or a file."""

    # What names their content: timm's name with its tag, or the file's hash.
    identity: str
    # Where the file is; empty for published weights.
    path: str = ""


def weights_named(level: Level) -> str:
    """What `pretrained` means: `timm` for true, nothing for false, otherwise a file."""
    if isinstance(level, bool):
        if level:
            return PUBLISHED_WEIGHTS
        return ""
    if level == PUBLISHED_WEIGHTS:
        # A file of this name, not the published weights.
        return f"./{level}"
    return str(level)


@dataclass(frozen=True)
class Teacher:
    """The trained network whose predictions a trial learns from."""

    architecture: Architecture
    weights: InitialWeights

    @property
    def identity(self) -> str:
        """What decides its predictions."""
        return (
            f"{self.architecture.backbone} {self.architecture.hash},"
            f" {self.weights.identity}"
        )


@dataclass(frozen=True, slots=True)
class Trial:
    """One training: architecture, recipe, data and seed.

    Equal trials have equal hashes and are trained once.
    """

    architecture: Architecture
    recipe: Recipe
    data: Data
    seed: int
    # The initial weights; None: they are random.
    start: InitialWeights | None = None
    # The network that the trial learns from; None: it learns from labels alone.
    teacher: Teacher | None = None
    # The content or revision of each user's part that trains it, such as a data set or
    # a loss. Those that build the network are in the architecture.
    code: Mapping[str, str] = field(default_factory=dict)
    # The fields of the recipe that the user's trainer reads, beside the epochs.
    reads: tuple[str, ...] = ()
    # What the seed decides. The seed of the split is in the data.
    vary: tuple[Source, ...] = VARIED
    # A slot, and no cached property: a plan may have a million trials.
    _hash: str = field(default="", init=False, repr=False, compare=False)

    def at_seed(self, seed: int) -> Trial:
        """Returns the same training with another seed."""
        data = self.data
        if "split" in self.vary:
            data = data.of_seed(seed)
        return replace(self, seed=seed, data=data)

    @property
    def init_seed(self) -> int:
        """The seed of the initial weights."""
        if "init" in self.vary:
            return self.seed
        return SHARED_SEED

    @property
    def order_seed(self) -> int:
        """The seed of all that is drawn while training."""
        if "order" in self.vary:
            return self.seed
        return SHARED_SEED

    @property
    def canonical_recipe(self) -> dict[str, Level]:
        """What decides the numbers: equal recipes give equal values here."""
        if self.architecture.trainer:
            return self.recipe.verbatim(self.reads)
        return self.recipe.canonical()

    @property
    def _recipe_json(self) -> str:
        if self.architecture.trainer:
            return canonical_json(self.canonical_recipe)
        # Cached in the recipe, which many trials share.
        return self.recipe.canonical_json

    @property
    def hash(self) -> str:
        if not self._hash:
            object.__setattr__(self, "_hash", self._computed_hash())
        return self._hash

    def _computed_hash(self) -> str:
        # JSON that is put together from parts in a fixed order. The parts are cached in
        # records that many trials share, which makes planning 100,000 trials fast.
        parts = [
            f'"architecture":{self.architecture.canonical_json}',
            f'"data":{self.data.canonical_json}',
            f'"recipe":{self._recipe_json}',
            f'"seed":{self.seed}',
        ]
        if self.start:
            parts.append(f'"start":{canonical_json(self.start.identity)}')
        if self.teacher:
            parts.append(f'"teacher":{canonical_json(self.teacher.identity)}')
        if self.code:
            parts.append(f'"code":{canonical_json(self.code)}')
        if self.vary != VARIED:
            parts.append(f'"vary":{canonical_json(self.vary)}')
        corrections = _corrections(self.architecture, self.recipe, self.data)
        if corrections:
            parts.append(f'"corrections":{canonical_json(corrections)}')
        return text_hash(f"{{{','.join(parts)}}}")


def _corrections(
    architecture: Architecture, recipe: Recipe, data: Data
) -> dict[str, int]:
    """Revisions of features that the trial uses and older versions got wrong.

    They enter the hash, so that results of the wrong code are not reused. All other
    trials keep their hashes.
    """
    revisions = {}
    settings = architecture.settings
    if recipe.mixup:
        # Until revision 2 the other image was added at the square of its share.
        revisions["mixup"] = 2
    if recipe.repeats > 1 and data.name in IMAGE_FILES:
        # Until revision 2 the copies of an image were parted.
        revisions["repeats"] = 2
    if settings.get("ffn.form") == "sum" and recipe.weight_decay:
        # Until revision 2 scales and biases of the sum had weight decay.
        revisions["ffn.form"] = 2
    # A backbone whose own pooling is the mean says so in its name; its own level is not
    # among the settings.
    averages = "gap" in architecture.backbone or architecture.backbone in (
        "test_vit2",
        "test_vit4",
    )
    pool = settings.get("size.pool", "mean" if averages else "token")
    if pool == "mean" and any(name.startswith("patch.") for name in settings):
        # Until revision 2 the losses saw tokens that were not normalised.
        revisions["patch"] = 2
    if settings.get("patch.variant") == "code":
        # Until revision 2 the loss of the classes was without its 1e-8.
        revisions["patch.variant"] = 2
    return revisions


@dataclass(frozen=True)
class Trained:
    """A stored trial, as diagnostics need it."""

    hash: str
    architecture: Architecture
    recipe: Recipe
    completed: bool
    # Identity of the initial weights; empty: they were random.
    start: str = ""


class Status(StrEnum):
    """Where a trial stands.

    Completed, diverged and abandoned are results in every study, pruned only in one with
    a scheduler. Only completed trials enter a mean. An abandoned trial has failed, and
    the user wants no other try.
    """

    PLANNED = "planned"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    FAILED = "failed"
    ABANDONED = "abandoned"


# States in which a trial has an outcome and trains no more.
RESOLVED = (
    Status.COMPLETED,
    Status.DIVERGED,
    Status.PRUNED,
    Status.FAILED,
    Status.ABANDONED,
)


# States that no further training would change. Pruned is none of them: a study without
# a scheduler trains such a trial to its end.
WITH_RESULT = (Status.COMPLETED, Status.DIVERGED, Status.ABANDONED)
