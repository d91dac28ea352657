"""Frozen records that all stages share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from annotated_types import Ge, Gt, Le, Lt, MaxLen

from ablate.identity import canonical_json, text_hash

# Characters of a level that is a word; the store's column has so many.
LONGEST_LEVEL = 200
# Pixels of an image's side: one image of it, and what a first layer makes of it, fit
# into memory.
MOST_SIDE = 4_096
# Classes: the largest labelled sets have tens of thousands.
MOST_CLASSES = 1_000_000
# The largest whole number that the store's columns of sizes and epochs take on every
# database.
MOST_WHOLE = 2**31 - 1
# Cells of a study: a table of more is read by nobody, and planning them takes minutes.
MOST_CELLS = 100_000
# Cells in training at once, and CPUs, GPUs or processes of one trial: more than the
# largest clusters have.
MOST_AT_ONCE = 10_000
# Times that an image is drawn in an epoch, and pixels that its border is padded by:
# memory grows with both.
MOST_REPEATS = 1_000

# The value of one factor in one cell.
Level: TypeAlias = bool | int | float | str

# Levels by factor name, as in `{"shortcuts.count": 2}`.
Settings: TypeAlias = Mapping[str, Level]


@dataclass(frozen=True)
class Architecture:
    """What the network is.

    `settings` is canonical: what the model does not read is not in it.
    """

    backbone: str
    image_size: int
    channels: int
    classes: int
    settings: Settings = field(default_factory=dict)

    @cached_property
    def canonical_json(self) -> str:
        return canonical_json(asdict(self))

    @cached_property
    def hash(self) -> str:
        return text_hash(self.canonical_json)


# Counted up when a rule of `cost/rules.py` changes, so that stored costs of older rules
# are counted anew.
COST_REVISION = 2


@dataclass(frozen=True)
class Cost:
    """What a network costs for one image.

    `flops` counts every operator that ran, by fvcore's convention (one multiply-add is
    one; adding, scaling and activating single elements is outside and stands in
    `elementwise`). `flops_paper` counts convolutions, linear layers and matrix products
    only, and circulant projections by their paper's formula. The two are never mixed.
    """

    params: int
    flops: int
    flops_paper: int
    activations: int
    elementwise: int


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. Each field can be a factor, as `recipe.lr`.

    `repeats` is repeated augmentation: an epoch draws as many images as ever, each
    drawn one so often, augmented anew. `select` says which weights are tested: those of
    the last epoch, or of the first one with the best top-1 on the validation split;
    with `ema` they are the averaged ones. `factor_decay` says which parameters of
    factors have weight decay: by the rule (matrices, and not scales and biases), or as
    in the papers' published code.

    `interpolation` resizes training images, and test images too unless the data say
    otherwise; `random` draws between bilinear and bicubic, and tests with bicubic.
    `crop_scale` is the least share of an image's area that a random crop takes, and its
    sides are at most `crop_ratio` to one. `crop_padding` takes images as they are
    instead, padded by so many pixels, and cuts them to size. `color_jitter` is the
    strength of random brightness, contrast and saturation. `three_augment` is DeiT
    III's augmentation: each image is made grey, solarised or blurred.

    `lr` is for a batch of `lr_batch` images, and grows with `batch_size` in proportion;
    with 0 it is for the batch as it is. Warm-up begins at `warmup_lr`, with 0 at a
    thousandth of the learning rate. `eps` of 0 is the optimiser's own. `layer_decay` is
    the ratio of the learning rates of a layer and the next. `accumulate` trains a batch
    in so many parts, one after the other, and takes one step. `ema_warmup` averages
    fewer updates at first. `mixup_mode` draws how images are mixed once a batch, a pair
    or an image, and `mixup_prob` says how often any are; after `mixup_off_epoch` epochs
    none are (0 is never).

    With `distillation` the network also learns from a teacher: from its probabilities
    (`soft`; `soft-code` divides that loss by the number of classes, as DeiT's code
    does) or from the class that it predicts (`hard`). `distillation_share` is the
    teacher's share of the loss. `distillation_temperature` divides the logits of both
    networks.
    """

    epochs: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 20
    batch_size: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 128
    optimizer: Literal["adamw", "sgd", "lamb", "nadamw"] = "adamw"
    lr: Annotated[float, Gt(0)] = 1e-3
    lr_batch: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    weight_decay: Annotated[float, Ge(0)] = 0.05
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    eps: Annotated[float, Ge(0)] = 0.0
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.999
    layer_decay: Annotated[float, Gt(0), Le(1)] = 1.0
    accumulate: Annotated[int, Ge(1), Le(MOST_REPEATS)] = 1
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_epochs: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    warmup_lr: Annotated[float, Ge(0)] = 0.0
    min_lr: Annotated[float, Ge(0)] = 0.0
    clip_grad: Annotated[float, Ge(0)] = 0.0
    loss: Literal["cross-entropy", "bce"] = "cross-entropy"
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    mixup: Annotated[float, Ge(0)] = 0.0
    cutmix: Annotated[float, Ge(0)] = 0.0
    mixup_switch: Annotated[float, Ge(0), Le(1)] = 0.5
    mixup_prob: Annotated[float, Gt(0), Le(1)] = 1.0
    mixup_mode: Literal["batch", "pair", "elem"] = "batch"
    mixup_off_epoch: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    distillation: Literal["none", "soft", "soft-code", "hard"] = "none"
    distillation_share: Annotated[float, Gt(0), Le(1)] = 0.5
    distillation_temperature: Annotated[float, Gt(0)] = 1.0
    crop_padding: Annotated[int, Ge(0), Le(MOST_REPEATS)] = 0
    crop_scale: Annotated[float, Gt(0), Le(1)] = 0.08
    crop_ratio: Annotated[float, Ge(1)] = 4 / 3
    interpolation: Literal["bilinear", "bicubic", "random"] = "bilinear"
    flip: Annotated[float, Ge(0), Le(1)] = 0.0
    rand_augment: Annotated[str, MaxLen(LONGEST_LEVEL)] = ""
    three_augment: bool = False
    color_jitter: Annotated[float, Ge(0), Le(1)] = 0.0
    random_erasing: Annotated[float, Ge(0), Le(1)] = 0.0
    repeats: Annotated[int, Ge(1), Le(MOST_REPEATS)] = 1
    ema: Annotated[float, Ge(0), Lt(1)] = 0.0
    ema_warmup: bool = False
    select: Literal["last", "best"] = "last"
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    factor_decay: Literal["rule", "code"] = "rule"

    @property
    def mixes(self) -> bool:
        """Whether two images of a batch are mixed into one."""
        return bool(self.mixup or self.cutmix)

    @property
    def distils(self) -> bool:
        """Whether the network learns from a teacher."""
        return self.distillation != "none"

    @property
    def rate(self) -> float:
        """The learning rate for a batch as it is."""
        if self.lr_batch:
            return self.lr * self.batch_size / self.lr_batch
        return self.lr

    @property
    def test_interpolation(self) -> Literal["bilinear", "bicubic"]:
        """How test images are resized where the data do not say."""
        if self.interpolation == "random":
            return "bicubic"
        return self.interpolation

    @property
    def extends(self) -> bool:
        """Whether a longer training begins as a shorter one: a cosine is stretched over
        all epochs, a constant rate is not.
        """
        return self.schedule == "constant"

    def fitted(self) -> Recipe:
        """The same recipe with no more warm-up than leaves one epoch after it."""
        most = max(0, self.epochs - 1)
        if self.warmup_epochs <= most:
            return self
        return replace(self, warmup_epochs=most)

    def refusal(self) -> str:
        """Why nothing can be trained by this recipe, with what to write; empty if
        something can.
        """
        if self.warmup_epochs < self.epochs:
            return ""
        return (
            f"{self.warmup_epochs} warm-up epochs leave nothing of {self.epochs}"
            f" epochs; set recipe.warmup_epochs below {self.epochs}"
        )

    def unread(self) -> dict[str, str]:
        """The fields that training does not read, each with when it would."""
        mixes_in_time = self.mixup_off_epoch < self.epochs
        rules: tuple[tuple[bool, tuple[str, ...], str], ...] = (
            (self.optimizer == "sgd", ("momentum",), "optimizer is sgd"),
            (
                self.optimizer != "sgd",
                ("eps", "beta1", "beta2"),
                "optimizer is adamw, lamb or nadamw",
            ),
            (self.warmup_epochs > 0, ("warmup_lr",), "warmup_epochs is above 0"),
            (self.weight_decay > 0, ("factor_decay",), "weight_decay is above 0"),
            (self.ema > 0, ("ema_warmup",), "ema is above 0"),
            (
                self.mixes,
                ("mixup_prob", "mixup_mode", "mixup_off_epoch"),
                "mixup or cutmix is used",
            ),
            (
                mixes_in_time or not self.mixes,
                ("mixup_off_epoch",),
                "it is below epochs",
            ),
            (
                self.distils,
                ("distillation_share",),
                "distillation is soft, soft-code or hard",
            ),
            (
                self.distillation in ("soft", "soft-code"),
                ("distillation_temperature",),
                "distillation is soft or soft-code",
            ),
            (self.schedule == "cosine", ("min_lr",), "schedule is cosine"),
            (
                bool(self.mixup and self.cutmix),
                ("mixup_switch",),
                "both mixup and cutmix are used",
            ),
            (not self.crop_padding, ("crop_scale", "crop_ratio"), "crop_padding is 0"),
            (
                not self.crop_padding or bool(self.rand_augment),
                ("interpolation",),
                "crop_padding is 0",
            ),
            (not self.rand_augment, ("color_jitter",), "rand_augment is empty"),
        )
        found: dict[str, str] = {}
        for read, names, when in rules:
            if not read:
                found |= dict.fromkeys(names, when)
        return found

    def told(self) -> dict[str, Level]:
        """The fields that a summary of the recipe shows: those that training reads and
        that differ from their defaults.
        """
        unread = self.unread()
        default = Recipe()
        always = (
            "epochs",
            "batch_size",
            "optimizer",
            "lr",
            "weight_decay",
            "momentum",
            "schedule",
            "loss",
            "repeats",
            "precision",
        )
        found: dict[str, Level] = {}
        for name in (f.name for f in fields(self) if f.name not in unread):
            level = getattr(self, name)
            if name in always or level != getattr(default, name):
                found[name] = level
        return found

    def canonical(self) -> dict[str, Level]:
        """The fields that training reads and that differ from their defaults.

        Two ways to say one learning rate are one.
        """
        if self.lr_batch:
            return replace(self, lr=self.rate, lr_batch=0).canonical()
        if self.warmup_lr == self.lr / 1000:
            return replace(self, warmup_lr=0.0).canonical()
        unread = self.unread()
        default = Recipe()
        names = (f.name for f in fields(self) if f.name not in unread)
        # The number of epochs is what a trial is asked for: it always stands there to
        # be read.
        return {
            n: getattr(self, n)
            for n in names
            if n == "epochs" or getattr(self, n) != getattr(default, n)
        }

    @cached_property
    def canonical_json(self) -> str:
        return canonical_json(self.canonical())


# Data sets that are read from image files, batch by batch.
IMAGE_FILES = frozenset({"imagenet", "folder", "flowers102", "pets"})


@dataclass(frozen=True)
class Data:
    """Which images, and what shape they have when the network sees them.

    `fingerprint` is the content's hash where the content is the user's own (files and
    folders), so that moving a file changes no identity and editing it does; sets that
    are the same everywhere are told by their name. `images` is the number of training
    images, 0 where nobody has counted them. `validation` is the share of the training
    images that is held out: each epoch is measured on them, and the test set is looked
    at once, at the end.

    `mean` and `std` (of values from 0 to 1, one for all channels or one each) normalise
    the images; empty, they are ImageNet's for image files, and the training images' own
    in memory. The others are for image files: `crop` is the share of a test image's
    shorter side that the central crop takes (0 is 0.875); `crop_mode` says whether the
    image keeps its proportions (`center`, the default), is made square first (`squash`)
    or padded to a square (`border`); `interpolation` resizes test images, and is the
    recipe's where it is not said.
    """

    name: str
    path: str
    image_size: int
    channels: int
    classes: int
    images: int = 0
    train_images: int | None = None
    test_images: int | None = None
    fingerprint: str = ""
    workers: int = 4
    validation: float = 0.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    crop: float = 0.0
    crop_mode: Literal["", "center", "squash", "border"] = ""
    interpolation: Literal["", "bilinear", "bicubic"] = ""

    def canonical(self) -> dict[str, Any]:
        """What decides the numbers: not the path, not the number of loading workers."""
        subset = {
            "train_images": self.train_images,
            "test_images": self.test_images,
            "fingerprint": self.fingerprint,
            "validation": self.validation,
            "mean": list(self.mean),
            "std": list(self.std),
            "crop": self.crop,
            "crop_mode": self.crop_mode,
            "interpolation": self.interpolation,
        }
        return {"name": self.name, "image_size": self.image_size} | {
            k: v for k, v in subset.items() if v
        }

    @cached_property
    def canonical_json(self) -> str:
        return canonical_json(self.canonical())


# The weights that timm publishes for a backbone, where a file could be named.
PUBLISHED_WEIGHTS = "timm"


@dataclass(frozen=True)
class Start:
    """The weights that training starts from: those that timm publishes for the
    backbone, or a file's.

    `identity` names their content: timm's name with its tag, or the file's hash; `path`
    is where a file lies.
    """

    identity: str
    path: str = ""


def weights_named(said: Level) -> str:
    """What `pretrained` of a space means: `timm` for true, nothing for false, else a
    file.
    """
    if isinstance(said, bool):
        if said:
            return PUBLISHED_WEIGHTS
        return ""
    if said == PUBLISHED_WEIGHTS:
        return f"./{said}"
    return str(said)


@dataclass(frozen=True)
class Teacher:
    """The trained network whose predictions a trial learns from: what it is, and its
    weights.
    """

    architecture: Architecture
    weights: Start

    @property
    def identity(self) -> str:
        """What decides its predictions."""
        return (
            f"{self.architecture.backbone} {self.architecture.hash},"
            f" {self.weights.identity}"
        )


@dataclass(frozen=True)
class Trial:
    """One training: architecture x recipe x data x seed.

    `start` names the weights that training starts from, if they are not drawn anew.
    `teacher` is the network that the trial learns from, if it does. Equal trials have
    equal hashes and are trained once.
    """

    architecture: Architecture
    recipe: Recipe
    data: Data
    seed: int
    start: Start | None = None
    teacher: Teacher | None = None

    @cached_property
    def hash(self) -> str:
        # The canonical JSON of a mapping of these, put together from parts that many
        # trials share.
        if self.start:
            start = f',"start":{canonical_json(self.start.identity)}'
        else:
            start = ""
        if self.teacher:
            teacher = f',"teacher":{canonical_json(self.teacher.identity)}'
        else:
            teacher = ""
        corrected = _corrections(self.architecture, self.recipe, self.data)
        if corrected:
            revision = f',"corrections":{canonical_json(corrected)}'
        else:
            revision = ""
        what = f'"architecture":{self.architecture.canonical_json},"data":{self.data.canonical_json}'
        return text_hash(
            f'{{{what},"recipe":{self.recipe.canonical_json},"seed":{self.seed}{start}{teacher}{revision}}}'
        )


def _corrections(
    architecture: Architecture, recipe: Recipe, data: Data
) -> dict[str, int]:
    """Revisions of what a trial reads and what was computed wrongly before: its stored
    results are not those of the old code.
    """
    found = {}
    settings = architecture.settings
    if recipe.mixup:
        # Until revision 2 the other image was added at the square of its share.
        found["mixup"] = 2
    if recipe.repeats > 1 and data.name in IMAGE_FILES:
        # Until revision 2 the copies of an image were parted.
        found["repeats"] = 2
    if settings.get("ffn.form") == "sum" and recipe.weight_decay:
        # Until revision 2 scales and biases of the sum had weight decay.
        found["ffn.form"] = 2
    # A backbone whose own pooling is the mean says so in its name; its own level is not
    # among the settings.
    averages = "gap" in architecture.backbone or architecture.backbone in (
        "test_vit2",
        "test_vit4",
    )
    pool = settings.get("size.pool", "mean" if averages else "token")
    if pool == "mean" and any(name.startswith("patch.") for name in settings):
        # Until revision 2 the losses saw tokens that were not normalised.
        found["patch"] = 2
    if settings.get("patch.variant") == "code":
        # Until revision 2 the loss of the classes was without its 1e-8.
        found["patch.variant"] = 2
    return found


@dataclass(frozen=True)
class Trained:
    """A trial as the store has it: what its network is, how and on what side of images
    it was trained, from which weights.
    """

    hash: str
    architecture: Architecture
    recipe: Recipe
    completed: bool
    start: str = ""


class Status(StrEnum):
    """Where a trial stands.

    Completed, pruned and diverged are results; only completed ones enter a mean.
    """

    PLANNED = "planned"
    RUNNING = "running"
    COMPLETED = "completed"
    PRUNED = "pruned"
    DIVERGED = "diverged"
    FAILED = "failed"


# States that no further training would change.
KNOWN = (Status.COMPLETED, Status.DIVERGED)


@dataclass(frozen=True)
class Resources:
    """What one trial occupies.

    Fractions share a device; `cpus` also sets the threads, and so the last bits of a
    sum.

    `processes` train one trial together, each on its even share of every batch: one on
    each of `gpus`, or all on the CPU, where they share `cpus`.
    """

    cpus: Annotated[float, Gt(0), Le(MOST_AT_ONCE)] = 1
    gpus: Annotated[float, Ge(0), Le(MOST_AT_ONCE)] = 0
    processes: Annotated[int, Ge(1), Le(MOST_AT_ONCE)] = 1

    @property
    def threads(self) -> int:
        """Threads of each process.

        Sums depend on their number in the last bit, so it is the same in every
        executor.
        """
        return max(1, int(self.cpus / self.processes))


@dataclass(frozen=True)
class Scheduler:
    """Which trials are stopped early: none, or by one of Ray Tune's rules.

    `grace_epochs` is how long every trial is trained at least, `reduction` the factor
    between rungs (ASHA, HyperBand), `samples` of how many other trials the median is
    taken at least.
    """

    name: Literal["fifo", "asha", "hyperband", "median"] = "fifo"
    grace_epochs: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 1
    reduction: Annotated[int, Ge(2), Le(MOST_WHOLE)] = 4
    samples: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 3

    @property
    def read(self) -> frozenset[str]:
        """The fields that this scheduler reads beside its name."""
        return frozenset(
            {"fifo": (), "median": ("grace_epochs", "samples")}.get(
                self.name, ("grace_epochs", "reduction")
            )
        )


@dataclass(frozen=True)
class Design:
    """Which cells of the space are trained.

    `cells` and `seed` are read by the random design only, `resolution` by the
    fractional: how many factors an effect must have together with another one that it
    cannot be told from.
    """

    name: Literal[
        "grid",
        "one-at-a-time",
        "leave-one-out",
        "add-one-in",
        "fractional",
        "plackett-burman",
        "random",
        "rows",
    ] = "grid"
    cells: Annotated[int, Ge(1), Le(MOST_CELLS)] | None = None
    seed: Annotated[int, Ge(0)] = 0
    resolution: Annotated[int, Ge(3), Le(5)] = 4

    @property
    def read(self) -> frozenset[str]:
        """The fields that this design reads beside its name."""
        return frozenset(
            {"random": ("cells", "seed"), "fractional": ("resolution",)}.get(
                self.name, ()
            )
        )

    @property
    def two_levels(self) -> bool:
        """Whether each factor is at its baseline or at its full level."""
        return self.name in (
            "leave-one-out",
            "add-one-in",
            "fractional",
            "plackett-burman",
        )


@dataclass(frozen=True)
class Strategy:
    """How a search proposes cells, until there are `cells` distinct ones that fit the
    limits, the baseline among them.

    A proposal is made from the results of all but the `parallel` - 1 proposals before
    it, whatever was ready when: so it depends on the seed and on results, never on
    timing, kills or machines. At most `parallel` cells are in training at once.
    """

    name: Literal[
        "random", "quasi-random", "tpe", "gp", "nsga2", "nsga3", "cmaes", "brute-force"
    ] = "tpe"
    cells: Annotated[int, Ge(1), Le(MOST_CELLS)] | None = None
    seed: Annotated[int, Ge(0)] = 0
    parallel: Annotated[int, Ge(1), Le(MOST_AT_ONCE)] = 4


@dataclass(frozen=True)
class Looks:
    """At which numbers of seeds verdicts are taken: at `first`, then after every `step`
    more, at most at `most`; cells that are decided get no further seed.
    """

    first: int
    most: int
    step: int

    @property
    def at(self) -> tuple[int, ...]:
        """The numbers of seeds, in their order."""
        return (*range(self.first, self.most, self.step), self.most)

    @property
    def number(self) -> int:
        return len(self.at)


@dataclass(frozen=True)
class Diagnostics:
    """What is looked at inside a network: which diagnostics, on how many test images,
    and each how many epochs beside the end.
    """

    names: tuple[str, ...] = ()
    images: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 64
    every: Annotated[int, Ge(1), Le(MOST_WHOLE)] | None = None

    def due(self, epoch: int, epochs: int) -> bool:
        """Whether anything is looked at after an epoch."""
        return bool(self.names) and (
            epoch == epochs or (self.every is not None and epoch % self.every == 0)
        )


Relation: TypeAlias = Literal["<=", "<", ">=", ">"]


@dataclass(frozen=True)
class CostOf:
    """A cost of the cell, or of the baseline."""

    name: str
    of_baseline: bool


@dataclass(frozen=True)
class Arithmetic:
    """A sum, difference, product or quotient."""

    left: Term
    operator: str
    right: Term


Term: TypeAlias = "float | CostOf | Arithmetic"


@dataclass(frozen=True)
class Limit:
    """A bound on costs; `text` is how it reads."""

    text: str
    left: Term
    relation: Relation
    right: Term


# What stays of a completed trial's checkpoint: all of it, so that a longer training can
# begin there; the last weights and those that were best on a validation split, without
# the optimiser; or nothing.
Keep: TypeAlias = Literal["last", "best", "none"]


@dataclass(frozen=True)
class DeclaredTeacher:
    """A teacher as a space names it.

    `weights` is a checkpoint file, or `timm` for the published weights.
    """

    backbone: str
    weights: str
    settings: Settings = field(default_factory=dict)


@dataclass(frozen=True)
class Space:
    """A declared study, every name known and every level allowed.

    `named` says whether the document says the name; else it is that of the file.
    `factors` holds the levels by factor name, first the baseline's; `backbone`,
    `data.image_size` and `recipe.FIELD` can vary too. `full` holds the levels that
    leave-one-out starts from and add-one-in adds; `rows` the cells of the design
    `rows`; what a row does not name is as in the unmodified backbone. `published` names
    the table of a paper whose rows these are. With a `strategy` the space is searched,
    and `design` is not read; `objectives` are what it is searched for, `metric` the
    first of them; with `adaptive` seeds a cell gets its next seed only while it is no
    worse than the best one so far. With a `control`, each variant gets a baseline of
    its own, of the same cost. `pretrained` is a checkpoint file, `timm` for the
    published weights, or empty; it can vary too. Cells whose recipe distils learn from
    the `teacher`. `margin` is the least difference of the metric that counts as one.
    With `looks`, `seeds` are the most that a cell may get. `keep` says what stays on
    disk of a completed trial. With `warmup_fits` the document sets no warm-up: each
    cell has that of the preset, cut to leave at least one epoch after it.
    """

    name: str
    named: bool
    document: str
    question: str
    expect: str
    source: str
    backbone: str
    factors: Mapping[str, tuple[Level, ...]]
    fixed: Settings
    baseline: Settings
    full: Settings
    design: Design
    seeds: tuple[int, ...]
    data: Data
    recipe: Recipe
    metric: str
    direction: Literal["max", "min"]
    limits: tuple[Limit, ...]
    resources: Resources
    scheduler: Scheduler
    rows: tuple[Settings, ...] = ()
    strategy: Strategy | None = None
    objectives: Mapping[str, Literal["max", "min"]] = field(default_factory=dict)
    adaptive: bool = False
    control: Literal["", "iso-params", "iso-flops"] = ""
    published: str = ""
    pretrained: str = ""
    teacher: DeclaredTeacher | None = None
    diagnostics: Diagnostics = Diagnostics()
    margin: float = 0.5
    looks: Looks | None = None
    keep: Keep = "last"
    warmup_fits: bool = False


Role: TypeAlias = Literal["reference", "baseline", "variant", "control"]


@dataclass(frozen=True)
class Cell:
    """One combination of levels in a plan.

    Exactly one of these holds: it is to be trained (`trials`, one a seed), it is
    `same_as` another cell, or it is infeasible. `note` says why in the last two cases.
    A control is that of the variant with number `control_of`. `unread` names the
    factors that the model does not read at these levels, as the number of blocks of no
    shortcut.
    """

    index: int
    levels: Settings
    role: Role
    unread: frozenset[str] = frozenset()
    architecture: Architecture | None = None
    cost: Cost | None = None
    trials: tuple[Trial, ...] = ()
    same_as: int | None = None
    note: str = ""
    control_of: int | None = None

    @property
    def feasible(self) -> bool:
        return bool(self.trials)


@dataclass(frozen=True)
class Plan:
    """All cells of a space, in the order of the table that they become."""

    space: Space
    cells: tuple[Cell, ...]

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Each distinct trial once, seed by seed, so that an interrupted study has
        whole rows of few seeds.
        """
        rows = [cell.trials for cell in self.cells if cell.trials]
        in_turn = (
            trial
            for seed in itertools.zip_longest(*rows)
            for trial in seed
            if trial is not None
        )
        return tuple({trial.hash: trial for trial in in_turn}.values())


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave.

    Losses are means over images; `top1` and `top5` are per cent; `seconds` and `joules`
    are circumstance (None where the hardware does not say).

    `loss`, `top1` and `top5` are of the validation split where there is one, else of
    the test set.
    """

    number: int
    train_loss: float
    loss: float
    top1: float
    top5: float
    lr: float
    seconds: float
    joules: float | None = None


@dataclass(frozen=True)
class Tested:
    """What the test set gave, looked at once, with the weights after `epoch` epochs."""

    epoch: int
    loss: float
    top1: float
    top5: float


@dataclass(frozen=True)
class Known:
    """What is known of a trial: its state, its epochs, and if it is completed what it
    came to, by metric.
    """

    status: Status
    epochs: tuple[Epoch, ...]
    final: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where an attempt runs."""

    executor: str
    host: str
    pid: int
    device: str
    threads: int


@dataclass(frozen=True)
class Started:
    """An attempt has begun, or gone on from a checkpoint after `epoch` epochs.

    `weights` says what it took from a start.
    """

    trial: str
    place: Place
    epoch: int
    weights: str = ""


@dataclass(frozen=True)
class Progressed:
    """Epochs were trained.

    The same epoch may be told again after a fault; it is the same epoch.
    """

    trial: str
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Measurement:
    """One diagnostic of one layer after an epoch: a number, or numbers (a vector, or
    the rows of a matrix).
    """

    epoch: int
    name: str
    layer: int
    value: float | None
    values: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class Measured:
    """Diagnostics were taken. Told again, they replace the same ones."""

    trial: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class Ended:
    """An attempt has ended.

    `status` running means: interrupted, to be resumed. `tested` is what a completed
    trial with a validation split came to; without one it is its last epoch.
    """

    trial: str
    status: Status
    error: str = ""
    tested: Tested | None = None


Event: TypeAlias = Started | Progressed | Measured | Ended


@dataclass(frozen=True)
class Job:
    """A trial as an executor gets it.

    `checkpoints` is the folder or URL of all trials' checkpoints, `history` what is
    known of it.

    `keep` says what stays of its checkpoint when it is completed. `beginnings` are
    trials that are the same but for fewer epochs, the longest first: it may go on from
    where one of them ended.
    """

    trial: Trial
    checkpoints: str
    resources: Resources
    history: tuple[Epoch, ...] = ()
    diagnostics: Diagnostics = Diagnostics()
    beginnings: tuple[str, ...] = ()
    keep: Keep = "last"


@dataclass(frozen=True)
class Order:
    """What an executor is to do: the jobs in their order, and by which rule they may be
    stopped early.

    `jobs` gives one job after another as they are asked for, None where there is none
    now but may be one later, and ends when there will be no more. All jobs occupy
    `resources`; none has more than `epochs` epochs. `peers` are curves of trials that
    are not among the jobs.
    """

    jobs: Iterable[Job | None]
    metric: str
    direction: Literal["max", "min"]
    resources: Resources
    epochs: int
    scheduler: Scheduler = Scheduler()
    cpus: int | None = None
    gpus: int | None = None
    peers: Mapping[str, tuple[Epoch, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CellResult:
    """What is known of one cell: its levels, its cost, and by seed the state and, where
    completed, the metric's value.
    """

    index: int
    levels: Settings
    unread: frozenset[str]
    role: str
    note: str
    same_as: int | None
    cost: Cost | None
    states: Mapping[int, Status]
    values: Mapping[int, float]
    control_of: int | None = None


@dataclass(frozen=True)
class StudyResults:
    """What is known of a study, cell by cell in the order of its table."""

    name: str
    question: str
    expect: str
    source: str
    metric: str
    direction: str
    factors: tuple[str, ...]
    cells: tuple[CellResult, ...]
    document: str = ""


@dataclass(frozen=True)
class Provenance:
    """On what and from what the attempts of one command ran."""

    command: str
    ablate: str
    commit: str
    dirty: bool
    python: str
    torch: str
    timm: str
    ray: str
    platform: str
    host: str
    cpu: str
    cores: int
    memory_gb: float
    gpus: str
