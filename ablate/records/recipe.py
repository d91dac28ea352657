"""How a network is trained."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen

from ablate.identity import canonical_json
from ablate.records.base import LONGEST_LEVEL, MOST_REPEATS, MOST_WHOLE, Level
from ablate.records.options import canonical_options

# The built-in losses.
LOSSES = ("cross-entropy", "bce")
# The optimizers that read eps, beta1 and beta2.
ADAMS = ("adamw", "lamb", "nadamw")
# The built-in schedules: first those that end at min_lr, then those that do not depend on
# the number of epochs.
WITH_END = ("cosine", "linear", "poly", "tanh", "wsd", "rsqrt")
WITHOUT_END = ("constant", "step", "multistep")
SCHEDULES = (*WITH_END, *WITHOUT_END)
# What a recipe can give the length of a training by.
LENGTHS = ("epochs", "steps", "images")
# Images that a training can see: more than the largest trainings do.
MOST_IMAGES = 10**13
# The level of `augmentation` that changes no image.
NO_AUGMENTATION = "none"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. Each field can be a factor, such as `recipe.lr`.

    `ablate schema` shows the text below each field.
    """

    epochs: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 20
    """Passes over the training images."""
    steps: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    """Length of the training in steps of the optimizer, in the place of `epochs`; 0:
    `epochs` says it. Training takes the nearest whole number of epochs; the plan shows
    it.
    """
    images: Annotated[int, Ge(0), Le(MOST_IMAGES)] = 0
    """Length of the training in images, each as often as it is seen, in the place of
    `epochs`; 0: `epochs` says it.
    """
    batch_size: Annotated[int, Ge(1), Le(MOST_WHOLE)] = 128
    """Images per step, over all processes of the trial."""
    optimizer: Annotated[str, MaxLen(LONGEST_LEVEL)] = "adamw"
    """Rule that turns gradients into steps: a name of timm's `list_optimizers()`, such
    as adamw, sgd, lion, muon, lamb, adafactor or rmsprop, or an optimizer from a file of
    your own.
    """
    optimizer_options: Annotated[str, MaxLen(LONGEST_LEVEL)] = ""
    """What this optimizer has for itself, in timm's names: a mapping, as in {betas:
    [0.95, 0.98], caution: true}, or, as a level of a factor, a text such as
    "caution=true". sgd has Nesterov's momentum unless {nesterov: false}.
    """
    lr: Annotated[float, Gt(0)] = 1e-3
    """Peak learning rate. With `lr_batch`, it is scaled by the batch size."""
    lr_batch: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    """The batch size that `lr` is for: the peak rate is lr * batch_size / lr_batch. 0:
    the peak rate is `lr` at any batch size.
    """
    lr_width: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    """The width that `lr` is for, with adamw: the weights of linear layers in a block have
    the rate lr * lr_width / width, all other parameters have lr. 0: all have lr.
    """
    weight_decay: Annotated[float, Ge(0)] = 0.05
    """Weight decay of weight matrices, as the optimizer applies it."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Momentum of sgd. Other optimizers have it among their options."""
    eps: Annotated[float, Ge(0)] = 0.0
    """Added to the denominator of adamw, lamb and nadamw; 0: the optimizer's own value.
    """
    beta1: Annotated[float, Ge(0), Lt(1)] = 0.9
    """Decay of the mean of gradients in adamw, lamb and nadamw."""
    beta2: Annotated[float, Ge(0), Lt(1)] = 0.999
    """Decay of the mean of squared gradients in adamw, lamb and nadamw."""
    layer_decay: Annotated[float, Gt(0), Le(1)] = 1.0
    """Learning rate of a layer divided by that of the next layer, which is nearer to
    the output.
    """
    accumulate: Annotated[int, Ge(1), Le(MOST_REPEATS)] = 1
    """Number of parts into which a batch is divided. The optimizer makes one step after
    all of them.
    """
    schedule: Annotated[str, MaxLen(LONGEST_LEVEL)] = "cosine"
    """Course of the learning rate after the warm-up: cosine, linear, poly, tanh, wsd,
    rsqrt, constant, step or multistep, in timm's words, or a schedule from a file of your
    own. wsd (warm-up, stable, decay) falls in the last fifth unless decay_epochs says
    otherwise.
    """
    schedule_options: Annotated[str, MaxLen(LONGEST_LEVEL)] = ""
    """What this schedule has for itself, in timm's names, written like
    optimizer_options: decay_epochs and decay_rate of step, decay_milestones (epochs) of
    multistep, decay_rate (the power) of poly, decay_epochs and decay_fn of wsd.
    """
    warmup_epochs: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    """Epochs in which the learning rate rises linearly."""
    warmup_lr: Annotated[float, Ge(0)] = 0.0
    """Learning rate at the beginning of the warm-up; 0: a thousandth of the peak rate.
    """
    min_lr: Annotated[float, Ge(0)] = 0.0
    """Learning rate at the end of the schedule."""
    clip_grad: Annotated[float, Ge(0)] = 0.0
    """Largest norm of the gradient; 0: it is not clipped."""
    loss: str = "cross-entropy"
    """What training minimises: cross-entropy, bce (binary cross-entropy), or a loss from
    a file of your own.
    """
    loss_threshold: Annotated[float, Ge(0), Lt(1)] = 0.0
    """With bce: targets above this probability are 1 and others 0, after mixing and
    smoothing (Wightman et al. 2021 have 0.2); 0: targets stay soft.
    """
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Probability that is spread evenly over all classes."""
    mixup: Annotated[float, Ge(0)] = 0.0
    """Alpha of the Beta distribution that mixup draws from; 0: no mixup."""
    cutmix: Annotated[float, Ge(0)] = 0.0
    """Alpha of the Beta distribution that CutMix draws from; 0: no CutMix."""
    mixup_switch: Annotated[float, Ge(0), Le(1)] = 0.5
    """Probability of CutMix, if both mixup and CutMix are used."""
    mixup_prob: Annotated[float, Gt(0), Le(1)] = 1.0
    """Probability that images are mixed at all."""
    mixup_mode: Literal["batch", "pair", "elem"] = "batch"
    """Whether the share of each image in the mixture is drawn once per batch, per pair
    or per image.
    """
    mixup_off_epoch: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    """Last epoch in which images are mixed; 0: they are mixed in all epochs."""
    distillation: Literal["none", "soft", "soft-code", "hard"] = "none"
    """What the network learns from a teacher: nothing, its probabilities (soft), or the
    class that it predicts (hard). soft-code is soft, with the teacher's term of the
    loss divided by the number of classes, as in DeiT's code.
    """
    distillation_share: Annotated[float, Gt(0), Le(1)] = 0.5
    """Share of the teacher in the loss."""
    distillation_temperature: Annotated[float, Gt(0)] = 1.0
    """Divides the logits of both networks."""
    crop_padding: Annotated[int, Ge(0), Le(MOST_REPEATS)] = 0
    """Pixels by which each side of a training image is padded before a random crop of
    the original size; 0: a random resized crop instead.
    """
    crop_scale: Annotated[float, Gt(0), Le(1)] = 0.08
    """Least share of an image's area that a random resized crop takes."""
    crop_ratio: Annotated[float, Ge(1)] = 4 / 3
    """Largest ratio of the sides of a random resized crop."""
    interpolation: Literal["bilinear", "bicubic", "random"] = "bilinear"
    """Resizes training images, and test images unless data.interpolation says
    otherwise. With random, training draws bilinear or bicubic at random, and testing
    uses bicubic.
    """
    flip: Annotated[float, Ge(0), Le(1)] = 0.0
    """Probability of a horizontal flip."""
    rand_augment: Annotated[str, MaxLen(LONGEST_LEVEL)] = ""
    """RandAugment policy in timm's words, such as rand-m9-mstd0.5-inc1; empty: none."""
    three_augment: bool = False
    """DeiT III's augmentation: each image is made grey, solarised or blurred."""
    color_jitter: Annotated[float, Ge(0), Le(1)] = 0.0
    """Strength of random brightness, contrast and saturation."""
    random_erasing: Annotated[float, Ge(0), Le(1)] = 0.0
    """Probability that a rectangle of an image is erased."""
    augmentation: Annotated[str, MaxLen(LONGEST_LEVEL)] = NO_AUGMENTATION
    """An augmentation from a file of your own, after the built-in ones; none: no such
    one.
    """
    repeats: Annotated[int, Ge(1), Le(MOST_REPEATS)] = 1
    """Repeated augmentation: number of copies of each image that an epoch draws. An
    epoch keeps its number of images, so it draws fewer different ones.
    """
    ema: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Decay of the exponential moving average of the weights. The averaged weights are
    then the tested ones. 0: no average.
    """
    ema_warmup: bool = False
    """The average spans fewer updates at first."""
    select: Literal["last", "best"] = "last"
    """Which weights are tested: those of the last epoch, or those of the epoch in which
    the main metric of the task (top1, box_ap or miou) is best on the validation split.
    If several epochs are best, the first one counts.
    """
    patience: Annotated[int, Ge(0), Le(MOST_WHOLE)] = 0
    """Number of epochs after which training ends if the main metric on the validation
    split is no better than before them; 0: training never ends for this reason.
    """
    target: Annotated[float, Ge(0), Le(100)] = 0.0
    """Value of the main metric, in percent, on the validation split at which training
    ends; 0: none.
    """
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type in which matrix products are computed; parameters are float32."""
    compile: bool = False
    """The network runs compiled (torch.compile), which takes some time at the start of
    each trial. It needs a C++ compiler.
    """
    channels_last: bool = False
    """Images and kernels of convolutions lie in memory with their channels last."""
    checkpointing: bool = False
    """The backward pass computes the activations of blocks again, which saves memory and
    takes time. The network must have timm's method set_grad_checkpointing.
    """
    tf32: bool = False
    """On a GPU, float32 matrix products are computed in TF32. Convolutions always are."""
    factor_decay: Literal["rule", "code"] = "rule"
    """Which parameters of factors have weight decay: matrices, but not scales and
    biases (rule), or the same ones as in the papers' published code (code).
    """

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
        """The peak learning rate, scaled from `lr_batch` to the batch size."""
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
    def has_usual_optimizer(self) -> bool:
        """Whether optimizer and schedule are known to work without trying them."""
        return (
            self.optimizer in (*ADAMS, "sgd")
            and self.schedule in ("cosine", "constant", "linear", "tanh")
            and not self.optimizer_options
            and not self.schedule_options
        )

    @property
    def ends_early(self) -> bool:
        """Whether training may end before its last epoch."""
        return bool(self.patience or self.target)

    @property
    def extends(self) -> bool:
        """Whether a training with more epochs begins exactly like one with fewer.

        A constant rate does not depend on the number of epochs; a cosine does.
        """
        return self.schedule in WITHOUT_END

    def in_epochs(self, images: int) -> Recipe:
        """The same recipe, with its length in epochs.

        Args:
            images: training images of an epoch.
        """
        if not (self.steps or self.images):
            return self
        batch = min(self.batch_size, images)
        # The last, smaller batch of an epoch is left out.
        steps = images // batch
        length = self.steps / steps if self.steps else self.images / (steps * batch)
        return replace(self, epochs=max(1, round(length)), steps=0, images=0)

    def fitted(self) -> Recipe:
        """The same recipe, with the warm-up cut to leave one epoch after it."""
        most = max(0, self.epochs - 1)
        if self.warmup_epochs <= most:
            return self
        return replace(self, warmup_epochs=most)

    def refusal(self) -> str:
        """Why the recipe cannot train, and what to write instead; empty if it can."""
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
            (
                self.optimizer == "sgd",
                ("momentum",),
                "optimizer is sgd (others have it in optimizer_options)",
            ),
            (
                self.optimizer in ADAMS,
                ("eps", "beta1", "beta2"),
                "optimizer is adamw, lamb or nadamw (others: optimizer_options)",
            ),
            (self.optimizer == "adamw", ("lr_width",), "optimizer is adamw"),
            (
                not (self.steps or self.images),
                ("epochs",),
                "steps and images are 0",
            ),
            (self.warmup_epochs > 0, ("warmup_lr",), "warmup_epochs is above 0"),
            (self.weight_decay > 0, ("factor_decay",), "weight_decay is above 0"),
            (self.loss == "bce", ("loss_threshold",), "loss is bce"),
            (self.ema > 0, ("ema_warmup",), "ema is above 0"),
            (
                self.mixes,
                ("mixup_prob", "mixup_mode", "mixup_off_epoch"),
                "mixup or cutmix is used",
            ),
            (
                # Without mixing, the rule above already gives the reason.
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
            (
                self.schedule in WITH_END,
                ("min_lr",),
                f"schedule is {', '.join(WITH_END[:-1])} or {WITH_END[-1]}",
            ),
            (
                # Mixing smooths the targets itself.
                self.loss in LOSSES or self.mixes,
                ("label_smoothing",),
                f"loss is {' or '.join(LOSSES)}, or mixup or cutmix is used",
            ),
            (
                bool(self.mixup and self.cutmix),
                ("mixup_switch",),
                "both mixup and cutmix are used",
            ),
            (not self.crop_padding, ("crop_scale", "crop_ratio"), "crop_padding is 0"),
            (
                not self.crop_padding or bool(self.rand_augment),
                ("interpolation",),
                "crop_padding is 0 or rand_augment is used",
            ),
            (not self.rand_augment, ("color_jitter",), "rand_augment is empty"),
        )
        reasons: dict[str, str] = {}
        for read, names, when in rules:
            if not read:
                reasons |= dict.fromkeys(names, when)
        return reasons

    def summary(self) -> dict[str, Level]:
        """The fields that a summary of the recipe shows: those that training reads and
        that differ from their defaults.
        """
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
        return self._unusual(always)

    def _unusual(self, always: Collection[str]) -> dict[str, Level]:
        """The fields that training reads, if they differ from their defaults.

        Args:
            always: fields that are kept even at their defaults.
        """
        unread = self.unread()
        default = Recipe()
        kept: dict[str, Level] = {}
        for field in fields(self):
            level = getattr(self, field.name)
            # Defaults are left out, so that a new field keeps old hashes.
            is_usual = level == getattr(default, field.name)
            if field.name in unread or (is_usual and field.name not in always):
                continue
            kept[field.name] = level
        return kept

    def canonical(self) -> dict[str, Level]:
        """The fields that training reads and that differ from their defaults.

        Two ways to write the same learning rate give the same fields.
        """
        if self.lr_batch:
            return replace(self, lr=self.rate, lr_batch=0).canonical()
        if self.warmup_lr == self.lr / 1000:
            # 0 stands for this value.
            return replace(self, warmup_lr=0.0).canonical()
        respelled = replace(
            self,
            optimizer_options=canonical_options(self.optimizer_options),
            schedule_options=canonical_options(self.schedule_options),
        )
        if respelled != self:
            return respelled.canonical()
        # A trial's number of epochs is always there to read, even the default.
        return self._unusual(["epochs"])

    def verbatim(self, names: Collection[str]) -> dict[str, Level]:
        """The epochs and these fields, as a training of the user's own reads them.

        What built-in training reads under which condition does not matter there.
        """
        return {name: getattr(self, name) for name in sorted({"epochs", *names})}

    @cached_property
    def canonical_json(self) -> str:
        return canonical_json(self.canonical())
