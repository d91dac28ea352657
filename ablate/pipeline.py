"""Connects the stages: space, plan, trial, execution, store, report.

Read `run` first: it is the table of contents of the whole system.

    _preview_and_create   space -> plan; what the store knows of its trials; what is left
                          to train
    _register             the plan goes into the store
    _train                a source hands out trials, a queue leases them, an executor
                          trains them, and every event is stored before the hooks receive
                          it
    _outcome              read back from the store

`preview` does the first step only, for `ablate plan`.

At any time, the store alone decides which trials have a result. If a run is killed at
any line, the next run begins at the top, finds the results in the store, and trains the
rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass

from ablate import execution
from ablate.errors import AblateError, DataError, StoreError
from ablate.machine import provenance
from ablate.machine.storage import try_out
from ablate.plan.sizes import refuse_unlike
from ablate.records import (
    CHAINS,
    COST_REVISION,
    WITH_RESULT,
    Before,
    Plan,
    Space,
    Status,
)
from ablate.scheduling.cost_cache import Count
from ablate.scheduling.jobs import make_order, make_queue
from ablate.scheduling.options import Options
from ablate.scheduling.policy import Policy
from ablate.scheduling.preview import Preview, make_preview, propose
from ablate.scheduling.queue import Searched
from ablate.scheduling.recorder import Hooks, Recorder, make_loggers, make_recorder
from ablate.scheduling.sources import StoredTrials, growth, make_source
from ablate.scheduling.stored_space import (
    validated_space,
    was_search,
    with_last_until_decided,
)
from ablate.scheduling.why import upgrades
from ablate.scheduling.why import why_new as explain
from ablate.store.database import exists
from ablate.store.notes import Notes, notes_file
from ablate.store.reader import Reader
from ablate.store.session import StoreSession
from ablate.store.studies import StudyStatus

__all__ = [
    "Hooks",
    "Options",
    "Outcome",
    "Preview",
    "cost_plan",
    "preview",
    "previews",
    "resume",
    "run",
    "why_new",
]


UNFINISHED = (Status.PLANNED, Status.RUNNING)


@dataclass(frozen=True)
class Outcome:
    """The result of a run, in numbers of trials.

    Attributes:
        trials: all trials of the study.
        known_before: trials that had a result before the run, or that another driver
            trained during the run.
        trained: trials that this run completed, pruned, or found to diverge.
        unfinished: trials that are planned or running.
        interrupted: whether trials or proposals are left for another run that this run
            should have trained.
        not_chosen: trials among the unfinished ones that this run was not to train.
        undiagnosed: completed trials that still lack the requested diagnostics.
        exhausted: the limit of the budget that ended the run, as `--max-trials 20`.
        gave_up: the error in which all of the first trials ended, so that the run
            stopped; empty if it did not.
    """

    study: str
    trials: int
    known_before: int
    trained: int
    failed: int
    unfinished: int
    interrupted: bool
    not_chosen: int = 0
    undiagnosed: int = 0
    exhausted: str = ""
    gave_up: str = ""


def preview(
    declared: Space, url: str, options: Options | None = None, *, probe: bool = True
) -> Preview:
    """What a run of a space would do. Trains no trial and stores nothing.

    With `across`, it is that of the first size.

    Args:
        url: the store; it need not exist.
        probe: time a few training steps if the store holds no times.
    """
    return previews([declared], url, options, probe=probe)[0]


def previews(
    spaces: Sequence[Space],
    url: str,
    options: Options | None = None,
    *,
    probe: bool = True,
    file: str = "",
) -> list[Preview]:
    """What a run of a space would do at each of its sizes.

    Args:
        spaces: the space at each size.
        url, probe: as for `preview`.
        file: that of the space; empty: it has none.

    Raises:
        AblateError: the sizes do not have the same rows, or do not differ.
        StoreError: another file has declared a study of this name.
    """
    with Reader(url) if exists(url) else nullcontext() as reader:
        if reader is not None:
            spaces = [with_last_until_decided(each, reader) for each in spaces]
        return _previews(spaces, reader, options or Options(), file, probe=probe)


def why_new(shown: Preview, url: str) -> list[str]:
    """Lines that say for each trial to train which part of its identity is new, and which
    packages have changed since the last run.
    """
    with Reader(url) if exists(url) else nullcontext() as reader:
        lines = explain(shown.plan, shown.to_train, shown.known, reader)
        return lines if reader is None else lines + upgrades(reader)


def cost_plan(declared: Space, url: str) -> Plan:
    """The plan of a space with the cost of each cell.

    Unlike `preview`, it accepts a space whose cells are all infeasible. It needs
    neither data nor a store.
    """
    with Reader(url) if exists(url) else nullcontext() as reader:
        plan, _ = propose(declared, reader)
        if plan.space.tune is None or reader is None:
            return plan
        known = reader.trials.known(trial.hash for trial in plan.trials)
        plan, _ = growth(plan, Before())(known)
        return plan


def run(
    declared: Space,
    file: str,
    options: Options,
    hooks: Hooks | None = None,
    executor: execution.Executor | None = None,
    *,
    predicted: bool = False,
) -> Outcome:
    """Trains the trials of a space that have no result yet, and stores their results.

    Running the same space again trains nothing. With a new level or seed, it trains
    what is new. After a kill, it goes on where it was. Several drivers may run one
    study at once if their store is a server.

    Args:
        file: the name of the space's file, which `resume` and reports show.
        executor: what trains the trials; by default the one that `options` name.
        predicted: with `across`, train the predicted size instead of the others.

    Raises:
        AblateError: the store, the data or the executor cannot do it. No stored result
            is lost.
    """
    from ablate import space
    from ablate.results.predictions import (
        refuse_without_prediction,
        store_predictions,
        with_predictions,
    )

    hooks = hooks or Hooks()
    spaces = space.at_sizes(declared, file)
    with StoreSession(options.url) as store:
        if store.exists:
            spaces = [with_last_until_decided(each, store.reader) for each in spaces]
        if predicted and not store.exists:
            refuse_without_prediction(declared.across, declared.name)
        # This also closes an executor that the caller has passed.
        with closing(
            executor or execution.make(options.executor, options.ray_address)
        ) as chosen:
            # Ray starts in the background while the costs of the plan are counted.
            due = [each for each in spaces if _has_predicted_size(each) == predicted]
            if not all(_seems_finished(each, store) for each in due):
                chosen.prepare(
                    options.cpus, options.gpus, declared.resources, declared.data
                )
            every = _previews_and_create(spaces, file, options, store, chosen)
            every = with_predictions(every, store.reader)
            if predicted:
                refuse_without_prediction(every[-1].plan.space.across, declared.name)
            previews = [
                each
                for each in every
                if _has_predicted_size(each.plan.space) == predicted
            ]
            for preview in previews:
                hooks.planned(preview)
            # All sizes are declared before the first result.
            study_ids = [_register(preview, file, store) for preview in previews]
            outcomes = []
            for preview, study_id in zip(previews, study_ids, strict=True):
                recorder = make_recorder(preview, options, store, hooks)
                hooks.begun(preview)
                # Whether all trials have been handed out, and all cells proposed.
                all_handed_out = True
                if preview.has_work:
                    all_handed_out = _train(
                        preview, study_id, options, store, chosen, hooks, recorder
                    )
                outcomes.append(
                    _outcome(
                        preview, store.reader, recorder, all_handed_out=all_handed_out
                    )
                )
                # `register` has cleared `finished_at`, which an earlier run may have
                # set. Failed trials are left to the next run, but a search has proposed
                # all of its cells.
                if not outcomes[-1].interrupted and not outcomes[-1].not_chosen:
                    store.writer.finish(study_id)
        outcome = _together(outcomes, declared)
        if not predicted and not outcome.unfinished and not outcome.failed:
            store_predictions(every, study_ids, store)
    return outcome


def _has_predicted_size(declared: Space) -> bool:
    return declared.across is not None and declared.across.is_predicted


def _together(outcomes: Sequence[Outcome], declared: Space) -> Outcome:
    """The outcome of a study, or of all sizes of one."""
    if declared.across is None:
        return outcomes[0]

    def total(name: str) -> int:
        return sum(getattr(outcome, name) for outcome in outcomes)

    def first(name: str) -> str:
        return next(filter(None, (getattr(each, name) for each in outcomes)), "")

    return Outcome(
        study=declared.across.ladder,
        trials=total("trials"),
        known_before=total("known_before"),
        trained=total("trained"),
        failed=total("failed"),
        unfinished=total("unfinished"),
        interrupted=any(outcome.interrupted for outcome in outcomes),
        not_chosen=total("not_chosen"),
        undiagnosed=total("undiagnosed"),
        exhausted=first("exhausted"),
        gave_up=first("gave_up"),
    )


def resume(
    study: str | None,
    options: Options,
    hooks: Hooks | None = None,
    executor: execution.Executor | None = None,
) -> Outcome:
    """Finishes a study from its stored YAML text.

    Args:
        study: its name, with or without its size; by default the last study that is
            not finished, or the last one if all are finished. All of its sizes are
            finished.

    Raises:
        UnknownName: the store has no such study.
        StoreError: there is no store, or it has no study.
    """
    with Reader(options.url) as reader:
        if study:
            status = reader.studies.of_any_size(study)
        else:
            archived = Notes(notes_file(options.url, options.runs)).archived()
            stored = reader.studies.all()
            trained = [each for each in stored if each.space.reported is None]
            listed = [each for each in trained if each.name not in archived]
            if trained and not listed:
                raise StoreError(
                    "all studies are archived; name one: ablate resume"
                    f" {trained[-1].name}"
                )
            status = _last_unfinished(listed)
        across = status.space.across
        ahead = reader.studies.predicted(across.ladder) if across else None
        sizes = reader.studies.sizes(across.ladder) if across else []
    if status.name.startswith(CHAINS):
        chain = status.name.split("/")[1]
        raise StoreError(
            f"{status.name} belongs to a chain, which decides how many seeds it gets; go on"
            f" with: ablate chain propose {chain} CHANGE"
        )
    declared = validated_space(status)
    # The predicted size was begun, and the others are as they were then.
    is_ahead = ahead is not None and not ahead.finished
    is_ahead = is_ahead and all(size.finished for size in sizes)
    return run(declared, status.file, options, hooks, executor, predicted=is_ahead)


def _last_unfinished(studies: list[StudyStatus]) -> StudyStatus:
    if not studies:
        raise StoreError(
            "the store holds no study to train; `ablate run FILE` makes one"
        )
    for study in reversed(studies):
        # All trials of a search may have results while cells are still to be
        # proposed.
        if study.unfinished or not study.finished:
            return study
    return studies[-1]


def _seems_finished(declared: Space, store: StoreSession) -> bool:
    """Whether the last run of this document finished, so no workers start early.

    This is a guess, made before the plan. If there is work after all, `executor.run`
    starts the workers.
    """
    if not store.exists:
        return False
    # `study.unfinished` counts failed trials too, which a run trains again.
    return any(
        study.name == declared.name
        and study.document == declared.document
        # `--until-decided` changes the looks, but not the document.
        and study.space.seeds.looks == declared.seeds.looks
        and not study.unfinished
        and study.finished
        for study in store.reader.studies.all()
    )


def _previews_and_create(
    spaces: Sequence[Space],
    file: str,
    options: Options,
    store: StoreSession,
    executor: execution.Executor,
) -> list[Preview]:
    """The preview of each size. Creates the store afterwards if there is none.

    A space that is refused thus leaves nothing behind.
    """

    def made() -> list[Preview]:
        return _previews(
            spaces,
            store.reader_if_any,
            options,
            file,
            probe=False,
            count=executor.count,
        )

    previews = made()
    # On a cluster, the nodes have the data.
    problems = [preview.data_problem for preview in previews if preview.data_problem]
    if executor.reads_data and not options.ray_address and problems:
        raise DataError(problems[0])
    if not store.exists:
        try_out(options.checkpoints)
    if not store.exists and store.create():
        # `create` is true if another driver has stored studies meanwhile. The
        # previews are then out of date.
        previews = made()
    return previews


def _previews(
    spaces: Sequence[Space],
    reader: Reader | None,
    options: Options,
    file: str,
    *,
    probe: bool,
    count: Count | None = None,
) -> list[Preview]:
    """The preview of each size.

    Raises:
        AblateError: the sizes do not have the same rows, or do not differ.
        StoreError: another file has declared a study of this name.
    """
    if reader is not None:
        _refuse_taken_name(spaces[0], reader)
        for each in spaces if file else ():
            reader.studies.refuse_other(each, file)
    previews: list[Preview] = []
    for each in spaces:
        earlier = [preview.plan for preview in previews]
        previews.append(
            make_preview(
                each, reader, options, probe=probe, count=count, earlier=earlier
            )
        )
    refuse_unlike([preview.plan for preview in previews])
    return previews


def _refuse_taken_name(declared: Space, reader: Reader) -> None:
    """Raises AblateError if a name would stand for a study and for several sizes."""
    across = declared.across
    if across is not None and across.ladder in reader.studies.names().values():
        raise AblateError(
            f"the store has a study {across.ladder} without sizes; give the one with"
            f" across another name, as in name: {across.ladder}-sizes"
        )
    if across is None and reader.studies.sizes(declared.name):
        raise AblateError(
            f"{declared.name} has several sizes in this store; give the study without"
            f" across another name, as in name: {declared.name}-one-size"
        )


def _register(preview: Preview, file: str, store: StoreSession) -> int:
    """Stores the study with its cells and trials. Returns its number."""
    declared = preview.plan.space
    # Whether stored cells that the plan lacks are left over from an earlier
    # declaration. While a search goes on they may not be: another driver may have
    # stored them.
    drop_others = preview.more_cells == 0 or not was_search(declared.name, store.reader)
    return store.writer.register(
        preview.plan,
        file,
        COST_REVISION,
        Policy.of(declared).again,
        drop_others=drop_others,
        full=preview.full_plan,
    )


def _train(
    preview: Preview,
    study_id: int,
    options: Options,
    store: StoreSession,
    executor: execution.Executor,
    hooks: Hooks,
    recorder: Recorder,
) -> bool:
    """Trains until the source has no more trials, or until the user stops the run.

    Returns:
        whether the source has handed out all of its trials. Some may still lack a
        result; `_outcome` counts them as unfinished.
    """
    declared = preview.plan.space
    policy = Policy.of(declared)
    try_out(options.checkpoints)
    store.writer.begin(study_id, declared.document, provenance.collect())
    stored = StoredTrials(
        study=study_id,
        policy=policy,
        reader=store.reader,
        writer=store.writer,
        trials=preview.plan.trials,
        announce=hooks.proposed,
        searched=declared if declared.strategy is not None else None,
    )
    source = make_source(
        preview.plan,
        preview.full_plan,
        preview.to_train,
        stored,
        store.reader,
        preview.before,
        executor.count,
    )
    with closing(make_loggers(declared, options)) as loggers:
        jobs = make_queue(
            preview, source, options, store, recorder.meter, loggers.follow
        )
        # Set only now: the recorder is made before the queue, because `_outcome` needs
        # it even if there is nothing to train.
        recorder.returned = jobs.returned
        recorder.loggers = loggers
        executor.run(
            make_order(preview, options, jobs), recorder.record, recorder.must_stop
        )
    # An earlier search of this study may have stored more cells than this one.
    if source.has_ended and isinstance(source, Searched):
        store.writer.trim(study_id, source.cells)
    return source.has_ended


def _outcome(
    preview: Preview, reader: Reader, recorder: Recorder, *, all_handed_out: bool
) -> Outcome:
    """The outcome of a run, counted by the stored status of its trials."""
    declared = preview.plan.space
    states = Counter(reader.studies.get(declared.name).by_status)
    shared = reader.trials.known(preview.shared, with_epochs=False).values()
    # They count as trials of the size that trains them.
    states.subtract(trial.status for trial in shared)
    undiagnosed = 0
    if declared.diagnostics.names:
        undiagnosed = reader.diagnostics.undiagnosed(
            declared.name, declared.diagnostics.names
        )
    total = sum(states.values())
    failed = states.get(Status.FAILED, 0)
    unfinished = sum(states.get(status, 0) for status in UNFINISHED)
    not_chosen = 0
    if preview.not_chosen:
        left = reader.trials.known(preview.not_chosen, with_epochs=False).values()
        not_chosen = sum(trial.status in UNFINISHED for trial in left)
    # Only trials of this run: other drivers may have trained some meanwhile.
    trained = sum(
        status in (*WITH_RESULT, Status.PRUNED) for status in recorder.ended.values()
    )
    return Outcome(
        study=declared.name,
        trials=total,
        known_before=total - failed - unfinished - trained,
        trained=trained,
        failed=failed,
        unfinished=unfinished,
        interrupted=not all_handed_out or unfinished > not_chosen,
        not_chosen=not_chosen,
        undiagnosed=undiagnosed,
        exhausted=recorder.meter.exhausted,
        gave_up=recorder.failures.error,
    )
