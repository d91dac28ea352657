"""The training loop: timm's optimiser, schedule, Mixup, EMA and losses, epoch by epoch.

What it guarantees: on a CPU with the same number of threads and processes, a training
that was interrupted and resumed gives the same bits as one that was not. This needs
three things. All state is in the checkpoint (`_state`): weights (also of loss terms),
EMA weights, optimiser, number of updates, gradient scaler, and every random state.
Checkpoints are taken between epochs only. And a warm process draws the same as a fresh
one: data are read before seeding, and Python's and numpy's states are seeded again
after the network is built, since imports may draw from them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from timm.optim import param_groups_weight_decay
from timm.utils import ModelEmaV3
from torch import Tensor, nn

from ablate import tasks
from ablate.diagnostics.observe import measure
from ablate.learning.optimizers import make_optimizer, make_schedule
from ablate.learning.own_metrics import refuse_not_finite
from ablate.learning.speed import arrange, compile_network, eager
from ablate.learning.stopping import ends_early
from ablate.learning.work import Batch, Evaluating, Work
from ablate.models import build_from
from ablate.models.initial_weights import read_start
from ablate.records import (
    VARIED,
    CorrectImages,
    Diagnostics,
    Epoch,
    Measurement,
    Tested,
    Trial,
)
from ablate.training.checkpoint import (
    CheckpointFolder,
    State,
    correct_of,
    correct_state,
    epoch_of,
    random_states,
    read_checkpoint,
    reseed_python,
    seed_everything,
    set_random_states,
    tested_of,
)
from ablate.training.decay import apply_exceptions
from ablate.training.energy import EnergyMeter
from ablate.training.errors import Diverged
from ablate.training.layer_order import layers_said
from ablate.training.parallel import Alone, Leader
from ablate.training.width_rate import scale_by_width

# The loss is checked after this many updates: reading it makes a GPU wait.
CHECK_EVERY = 50


class Training:
    """The training of one trial.

    The constructor seeds every random state and builds the network. If the folder has a
    checkpoint of this trial, training resumes from there: on a CPU, with equal threads
    and processes, bit for bit as if it had never stopped.

    If several processes train a trial together, `processes` is their number. The other
    processes get a `group` and no folder.

    Args:
        beginnings: the places of the checkpoints of trials that differ only in having
            fewer epochs, by trial, the longest first.
        meter: measures the energy of an epoch.

    Attributes:
        epochs: all epochs so far, including those of earlier attempts.
        measurements: all diagnostics taken so far.
        weights: what was taken from the initial weights, in words.
        tested: the final result on the test set, for a trial with a validation split.
        correct: which test images the last evaluation on the test set got right; None
            for other tasks than classification, and if several processes train the
            trial, because each of them sees only its share of the images.
    """

    def __init__(
        self,
        trial: Trial,
        folder: str | Path | None,
        *,
        device: str = "cpu",
        threads: int = 1,
        processes: int = 1,
        group: Alone | None = None,
        beginnings: Mapping[str, str] | None = None,
        meter: EnergyMeter | None = None,
    ) -> None:
        # The number of threads changes the order of sums, and so the last bits of a
        # result.
        torch.set_num_threads(threads)
        self._trial = trial
        self._recipe = trial.recipe
        self._device = torch.device(device)
        self._checkpoint: CheckpointFolder | None = None
        if folder is not None:
            self._checkpoint = CheckpointFolder(folder, trial.hash)
        self._group = group or Alone()
        self._beginnings = beginnings or {}
        self._task = tasks.of(trial.architecture)
        self._meter = meter
        try:
            if processes > 1:
                self._group = Leader(trial, processes, device, threads)
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        recipe = self._recipe
        # The data are read before seeding: their imports may draw random numbers,
        # depending on whether this process has imported them before.
        self._work: Work = self._task.work(self._trial, self._device, self._group.share)
        self._order = seed_everything(self._trial.init_seed)
        # Right after seeding, so that initial weights depend on the seed and the
        # architecture alone.
        model, loaded = build_from(self._trial.architecture, read_start(self._trial))
        self._model = self._group.synchronise(model.to(self._device))
        self.weights = str(loaded) if self._trial.start else ""
        arrange(self._model, recipe, self._device, self._task.unread)
        with layers_said(self._model):
            self._optimizer = make_optimizer(self._model, recipe)
        apply_exceptions(self._optimizer, self._model, recipe)
        scale_by_width(self._optimizer, self._model, recipe)
        if recipe.ema:
            self._ema = ModelEmaV3(
                self._model, decay=recipe.ema, use_warmup=recipe.ema_warmup
            )
        else:
            self._ema = None
        # After the EMA copy: the copy would otherwise have the hooks that collect patch
        # tokens.
        self._work.attach(self._model)
        if "compile" not in self._task.unread and recipe.compile:
            compile_network(self._model)
        for group in param_groups_weight_decay(self._work.extra, recipe.weight_decay):
            if group["params"]:
                self._optimizer.add_param_group(group)
        self._schedule = make_schedule(recipe, self._optimizer, self._work.updates)
        self._scaler = torch.amp.GradScaler(
            self._device.type, enabled=recipe.precision == "float16"
        )
        # The number of updates, not of epochs, drives the schedule and the warmup of
        # the EMA.
        self._updates = 0
        self.epochs: list[Epoch] = []
        self.measurements: list[Measurement] = []
        self.tested: Tested | None = None
        self.correct: CorrectImages | None = None
        self._best: State = {}
        if not set(VARIED) <= set(self._trial.vary):
            # Building has drawn from torch's state. With one seed for the order, all
            # trials draw the same only if they begin again here.
            self._order = seed_everything(self._trial.order_seed)
        # Building may have imported modules that draw from these states. A warm and a
        # fresh process must continue alike.
        reseed_python(self._trial.order_seed)
        # Only the leader reads the file; every process restores the same state, random
        # states included, before they start to share gradients.
        state = self._group.state(self._load())
        if state is not None:
            self._restore(state)
        self._group.join()
        self._shared_step = self._group.wrap(self._work.step)

    def _load(self) -> State | None:
        """Returns the trial's checkpoint, or that of a trial that is its beginning."""
        if self._checkpoint is None:
            return None
        state = self._checkpoint.load()
        if state is not None:
            return state
        states = (
            read_checkpoint(location, key) for key, location in self._beginnings.items()
        )
        return next(
            (
                begun
                for begun in states
                if begun is not None and not begun.get("weights_only")
            ),
            None,
        )

    @property
    def finished(self) -> bool:
        if len(self.epochs) >= self._recipe.epochs:
            return True
        metric = self._task.decides
        return self._recipe.ends_early and ends_early(
            self._recipe, metric, [epoch.metrics[metric.name] for epoch in self.epochs]
        )

    def epoch(self) -> Epoch:
        """Trains one epoch, then evaluates on the validation split.

        Without a validation split it evaluates on the test set.

        Raises:
            Diverged: the loss is not finite.
            ExecutorError: another process of the trial has failed.
        """
        start = time.perf_counter()
        if self._meter is not None:
            self._meter.start()
        with self._group.together():
            train_loss = self._train()
            tested = self._test(validation=self._trial.data.validation > 0)
        # A task without a loss on test images has that of training alone.
        loss = tested.get("loss", train_loss)
        if not (math.isfinite(train_loss) and math.isfinite(loss)):
            raise Diverged(
                f"loss is {train_loss} in training and {loss} in evaluation at epoch"
                f" {len(self.epochs) + 1}"
            )
        refuse_not_finite(tested, len(self.epochs) + 1)
        first = self._optimizer.param_groups[0]
        # With decay by layer, timm scales the rate of each group; the recipe's rate is
        # recorded.
        lr = float(first["lr"]) / first.get("lr_scale", 1.0)
        seconds = time.perf_counter() - start
        joules = self._meter.joules() if self._meter is not None else None
        epoch = Epoch(
            number=len(self.epochs) + 1,
            metrics={**tested, "train_loss": train_loss},
            lr=lr,
            seconds=seconds,
            joules=joules,
        )
        self.epochs.append(epoch)
        if self._trial.data.validation:
            self._select(epoch)
        return epoch

    @property
    def _tested_model(self) -> nn.Module:
        """The network that is evaluated: with EMA weights if the recipe keeps them."""
        if self._ema is None:
            return self._model
        averaged: nn.Module = self._ema.module
        return averaged

    def _select(self, epoch: Epoch) -> None:
        """Keeps the best weights if the recipe asks for them.

        After the last epoch it evaluates on the test set, once.
        """
        if self._recipe.select == "best" and self._is_best(epoch):
            kept = {
                name: tensor.detach().cpu().clone()
                for name, tensor in self._tested_model.state_dict().items()
            }
            self._best = {
                "epoch": epoch.number,
                "value": epoch.metrics[self._task.decides.name],
                "model": kept,
            }
        if not self.finished:
            return
        model, last = self._tested_model, dict[str, Tensor]()
        if self._best:
            last = {
                name: tensor.detach().clone()
                for name, tensor in model.state_dict().items()
            }
            model.load_state_dict(self._best["model"])
        with self._group.together():
            tested = self._test()
        loss = tested.get("loss", 0.0)
        if not math.isfinite(loss):
            raise Diverged(f"loss is {loss} on the test set")
        if last:
            # A longer training may begin with this checkpoint; it continues from the
            # last weights.
            model.load_state_dict(last)
        chosen = self._best.get("epoch", epoch.number)
        self.tested = Tested(epoch=chosen, metrics=tested)

    def _is_best(self, epoch: Epoch) -> bool:
        """Whether an epoch is better than all before it, on the validation split."""
        metric = self._task.decides
        value = epoch.metrics[metric.name]
        if not self._best:
            return True
        if metric.direction == "max":
            return value > float(self._best["value"])
        return value < float(self._best["value"])

    def diagnose(self, diagnostics: Diagnostics) -> tuple[Measurement, ...]:
        """Takes diagnostics of the evaluated network on the first test images."""
        # Diagnostics must not change what training draws next.
        with torch.random.fork_rng(devices=[]), eager(self._tested_model):
            taken = measure(
                self._tested_model,
                self._trial.architecture.backbone,
                self._work.first_images(diagnostics.images),
                diagnostics.names,
                len(self.epochs),
            )
        self.measurements += taken
        return taken

    def diagnosed(self, names: tuple[str, ...]) -> bool:
        """Whether all of these diagnostics were taken after the last epoch."""
        taken = {
            measurement.name.partition(".")[0]
            for measurement in self.measurements
            if measurement.epoch == len(self.epochs)
        }
        return set(names) <= taken

    def save(self, *, weights_only: bool = False) -> None:
        """Writes the checkpoint.

        Args:
            weights_only: for a finished trial, keep only the last and the best weights
                and the results. Training cannot resume from this.
        """
        assert self._checkpoint is not None
        state = self._state()
        if weights_only:
            # Diagnostics use the last weights, even if the best ones were tested.
            kept = {
                key: state[key]
                for key in ("epochs", "measurements", "tested", "correct", "best")
            }
            state = {
                "weights_only": True,
                "model": self._tested_model.state_dict(),
                "ema": {},
                **kept,
            }
        self._checkpoint.save(state)

    def close(self) -> None:
        """Releases the trial's folder and the other processes."""
        self._group.close()
        if self._checkpoint is not None:
            self._checkpoint.release()

    def _beat(self) -> None:
        if self._meter is not None:
            self._meter.tick()
        if self._checkpoint is not None:
            self._checkpoint.beat()

    def _autocast(self) -> Any:
        if self._recipe.precision == "float32":
            return nullcontext()
        return torch.autocast(
            self._device.type, dtype=getattr(torch, self._recipe.precision)
        )

    def _train(self) -> float:
        """Makes one pass over the training set; returns the mean loss per image."""
        self._model.train()
        self._group.begin_epoch(self._trial.order_seed, len(self.epochs))
        self._work.begin_epoch(len(self.epochs))
        # The sum stays on the device: reading it after each update would make a GPU
        # wait.
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        images = 0
        for update, batch in enumerate(self._work.train(self._order)):
            total += self._update(batch).double() * batch.images
            images += batch.images
            if update % CHECK_EVERY == CHECK_EVERY - 1 and not math.isfinite(
                total_loss := self._group.total(total, images)[0].item()
            ):
                raise Diverged(
                    f"training loss is {total_loss} in epoch {len(self.epochs) + 1}, update"
                    f" {update + 1}"
                )
        total, images = self._group.total(total, images)
        return total.item() / images

    def _update(self, batch: Batch) -> Tensor:
        """Makes one step of the optimiser; returns the loss, still on the device."""
        self._optimizer.zero_grad()
        loss = self._backward(batch)
        if self._recipe.clip_grad:
            # The threshold is for true gradients, not for gradients of the scaled loss.
            self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(
                [*self._model.parameters(), *self._work.extra.parameters()],
                self._recipe.clip_grad,
            )
        self._scaler.step(self._optimizer)
        self._scaler.update()
        self._updates += 1
        self._beat()
        if self._schedule is not None:
            self._schedule.step_update(self._updates)
        if self._ema is not None:
            self._ema.update(self._model, step=self._updates)
        return loss

    def _backward(self, batch: Batch) -> Tensor:
        """Computes the gradient of a batch, part by part. Returns the batch's loss."""
        total = torch.zeros((), device=self._device)
        for number, part in enumerate(batch.parts, 1):
            # Several processes exchange their gradients only once, with the last part.
            if number < len(batch.parts):
                waiting = getattr(self._shared_step, "no_sync", nullcontext)
            else:
                waiting = nullcontext
            with waiting():
                with self._autocast():
                    loss: Tensor = self._shared_step(*self._work.arguments(part))
                self._scaler.scale(loss * part.share).backward()
            total += loss.detach() * part.share
        return total

    @torch.inference_mode()
    def _test(self, *, validation: bool = False) -> dict[str, float]:
        """Returns each metric on the test set, or on the validation split."""
        model = self._tested_model
        model.eval()
        self._group.same_buffers(model)
        correct: list[Tensor] = []
        whole = not validation and self._group.share.of == 1
        tools = Evaluating(
            autocast=self._autocast,
            beat=self._beat,
            total=self._group.total,
            correct=correct.append if whole else None,
        )
        evaluation = self._work.evaluate(model, tools, validation=validation)
        if correct:
            self.correct = CorrectImages.of(torch.cat(correct).cpu().numpy())
        return evaluation

    def _state(self) -> State:
        return {
            "model": self._model.state_dict(),
            "terms": self._work.extra.state_dict(),
            "ema": self._ema.module.state_dict() if self._ema is not None else {},
            "optimizer": self._optimizer.state_dict(),
            "schedule": {"updates": self._updates},
            "scaler": self._scaler.state_dict(),
            "random": random_states(self._order),
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "measurements": [
                {
                    **asdict(taken),
                    "values": None if taken.values is None else list(taken.values),
                }
                for taken in self.measurements
            ],
            "best": self._best,
            "tested": asdict(self.tested) if self.tested is not None else {},
            "correct": correct_state(self.correct),
        }

    def _restore(self, state: State) -> None:
        if state.get("weights_only"):
            self._restore_finished(state)
            return
        self._model.load_state_dict(state["model"])
        self._work.extra.load_state_dict(state.get("terms", {}))
        if self._ema is not None:
            self._ema.module.load_state_dict(state["ema"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._updates = state["schedule"]["updates"]
        # The schedule has no state of its own: the number of updates sets the rate.
        if self._schedule is not None and self._updates:
            self._schedule.step_update(self._updates)
        self._scaler.load_state_dict(state["scaler"])
        self._recall(state)
        self._best = _best_of(state)
        # Last, so that nothing above can draw from the restored states.
        set_random_states(state["random"], self._order)

    def _restore_finished(self, state: State) -> None:
        """Restores a finished trial whose checkpoint has only its weights."""
        self._tested_model.load_state_dict(state["model"])
        self._best = _best_of(state)
        self._recall(state)

    def _recall(self, state: State) -> None:
        """Restores what is known of the epochs so far."""
        self.epochs = [epoch_of(epoch) for epoch in state["epochs"]]
        self.measurements = [
            Measurement(
                **{**taken, "values": taken["values"] and tuple(taken["values"])}
            )
            for taken in state.get("measurements", [])
        ]
        # A training that continues a shorter, tested one is tested at its own end.
        if self.finished and state.get("tested"):
            self.tested = tested_of(state["tested"])
        if self.finished:
            self.correct = correct_of(state.get("correct", {}))


def _best_of(state: State) -> State:
    """Returns the best epoch that a checkpoint describes; empty if there is none."""
    best: State = dict(state.get("best", {}))
    if "top1" in best:
        # Written by a version that knew classification only.
        best["value"] = best.pop("top1")
    return best
