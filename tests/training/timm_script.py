"""What timm's training script `train.py` (version 1.0.31) does with a batch, an epoch
and the test images, from timm's own parts.

The script is not in timm's package, and takes its images from a folder: here the same
calls are made in its order on batches that are handed in. Arguments have the script's
names and, where the tests do not set them, its defaults.
"""

from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import nullcontext
from functools import partial

import torch
from timm import utils
from timm.data import Mixup
from timm.loss import (
    BinaryCrossEntropy,
    LabelSmoothingCrossEntropy,
    SoftTargetCrossEntropy,
)
from timm.optim import create_optimizer_v2
from timm.optim._optim_factory import optimizer_kwargs
from timm.scheduler import create_scheduler_v2
from timm.scheduler.scheduler_factory import scheduler_kwargs
from timm.task import ClassificationTask
from torch import Tensor, nn

DEFAULTS = {
    "opt": "sgd",
    "opt_eps": None,
    "opt_betas": None,
    "momentum": 0.9,
    "weight_decay": 2e-5,
    "layer_decay": None,
    "clip_grad": None,
    "clip_mode": "norm",
    "grad_accum_steps": 1,
    "sched": "cosine",
    "sched_on_updates": False,
    "warmup_prefix": False,
    "warmup_lr": 1e-5,
    "warmup_epochs": 5,
    "min_lr": 0.0,
    "mixup": 0.0,
    "cutmix": 0.0,
    "mixup_prob": 1.0,
    "mixup_switch_prob": 0.5,
    "mixup_mode": "batch",
    "mixup_off_epoch": 0,
    "smoothing": 0.1,
    "bce_loss": False,
    "bce_target_thresh": None,
    "model_ema": False,
    "model_ema_decay": 0.9998,
    "model_ema_warmup": False,
    "amp_dtype": None,
    "num_classes": 10,
}
Batches = Iterable[tuple[Tensor, Tensor]]


class Script:
    """A run of the script.

    Attributes:
        losses: that of each update.
        rates: the learning rate of each parameter group after each update.
    """

    def __init__(
        self, model: nn.Module, updates_per_epoch: int, **said: object
    ) -> None:
        args = Namespace(**{**DEFAULTS, **said})
        self.args, self.updates_per_epoch = args, updates_per_epoch
        self.autocast = nullcontext
        if args.amp_dtype is not None:
            self.autocast = partial(
                torch.autocast, device_type="cpu", dtype=args.amp_dtype
            )
        self.mixup = self._mixup()
        self.task = ClassificationTask(
            model=model, criterion=self._loss(), verbose=False
        )
        self.optimizer = create_optimizer_v2(
            self.task.get_trainable_module(), **optimizer_kwargs(cfg=args)
        )
        if args.model_ema:
            self.task.setup_ema(
                decay=args.model_ema_decay, use_warmup=args.model_ema_warmup
            )
        kwargs = scheduler_kwargs(args, decreasing_metric=False)
        self.scheduler, self.epochs = create_scheduler_v2(
            self.optimizer, **kwargs, updates_per_epoch=updates_per_epoch
        )
        self.losses: list[float] = []
        self.rates: list[list[float]] = []

    def _mixup(self) -> Mixup | None:
        args = self.args
        if not (args.mixup > 0 or args.cutmix > 0):
            return None
        return Mixup(
            mixup_alpha=args.mixup,
            cutmix_alpha=args.cutmix,
            cutmix_minmax=None,
            prob=args.mixup_prob,
            switch_prob=args.mixup_switch_prob,
            mode=args.mixup_mode,
            label_smoothing=args.smoothing,
            num_classes=args.num_classes,
        )

    def _loss(self) -> nn.Module:
        args = self.args
        threshold = args.bce_target_thresh
        if self.mixup is not None:
            return (
                BinaryCrossEntropy(target_threshold=threshold)
                if args.bce_loss
                else SoftTargetCrossEntropy()
            )
        if args.smoothing:
            return (
                BinaryCrossEntropy(smoothing=args.smoothing, target_threshold=threshold)
                if args.bce_loss
                else LabelSmoothingCrossEntropy(args.smoothing)
            )
        return nn.CrossEntropyLoss()

    def train_one_epoch(self, epoch: int, batches: Batches) -> OrderedDict[str, float]:
        """`train_one_epoch` of the script, for one process and without its loss scaler,
        which float16 alone needs.
        """
        args, losses = self.args, utils.AverageMeter()
        if (
            args.mixup_off_epoch
            and epoch >= args.mixup_off_epoch
            and self.mixup is not None
        ):
            self.mixup.mixup_enabled = False
        self.task.get_trainable_module().train()
        updates = epoch * self.updates_per_epoch
        self.optimizer.zero_grad()
        for index, (images, labels) in enumerate(batches):
            if self.mixup is not None:
                images, labels = self.mixup(images, labels)
            with self.autocast():
                loss = self.task(images, labels)["loss"]
            if args.grad_accum_steps > 1:
                loss /= args.grad_accum_steps
            loss.backward()
            losses.update(loss.item() * args.grad_accum_steps, len(images))
            if (index + 1) % args.grad_accum_steps:
                continue
            if args.clip_grad is not None:
                utils.dispatch_clip_grad(
                    self.task.get_clip_parameters(),
                    value=args.clip_grad,
                    mode=args.clip_mode,
                )
            self.optimizer.step()
            updates += 1
            self.optimizer.zero_grad()
            self.task.update_ema(step=updates)
            self.scheduler.step_update(num_updates=updates, metric=losses.avg)
            self.losses.append(losses.val)
            self.rates.append([group["lr"] for group in self.optimizer.param_groups])
        return OrderedDict([("loss", losses.avg)])

    def validate(self, batches: Batches) -> OrderedDict[str, float]:
        """`validate` of the script, with the averaged weights where it keeps them."""
        model = self.task.get_eval_model(ema=self.args.model_ema)
        losses, top1, top5 = (
            utils.AverageMeter(),
            utils.AverageMeter(),
            utils.AverageMeter(),
        )
        model.eval()
        with torch.inference_mode():
            for images, labels in batches:
                with self.autocast():
                    output = model(images)
                    loss = nn.CrossEntropyLoss()(output, labels)
                acc1, acc5 = utils.accuracy(output, labels, topk=(1, 5))
                losses.update(loss.item(), len(images))
                top1.update(acc1.item(), len(images))
                top5.update(acc5.item(), len(images))
        return OrderedDict(
            [("loss", losses.avg), ("top1", top1.avg), ("top5", top5.avg)]
        )

    def step_epoch(self, epoch: int, top1: float) -> None:
        """What the script does between two epochs."""
        self.scheduler.step(epoch + 1, top1)
