"""The verb `run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fedpub.cli.flags import Settings, Typed
from fedpub.cli.show import show_result
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.runs.progress import progress
from fedpub.runs.simulated import run
from fedpub.runs.tracking import Tracker
from fedpub.store.directory import RunDirectory
from fedpub.store.record import Row


def run_(
    typed: Typed,
    experiment: Annotated[Experiment, Settings(without=("options",))] = Experiment(),  # noqa: B008
    out: Path | None = None,
    resume: Path | None = None,
    config: Path | None = None,
    json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    track: tuple[str, ...] = (),
    data_root: Path | None = None,
    chunk: int | None = None,
    max_memory: float | None = None,
    checkpoint_seconds: float = 60.0,
    keep_checkpoint: bool = False,
) -> None:
    """Train one method on the clients of one graph.

    Each method has flags of its own: `fedpub run --method gcfl --help` shows GCFL's.

    Example: fedpub run --dataset communities --method fedpub --rounds 5 --out runs/first

    Args:
        out: New run directory.
        resume: Run directory to resume, with its own configuration.
        config: The config.json of another run, in place of the experiment's flags.
        track: Tracker that also logs every round.
        chunk: Clients computed at a time: less memory, the same result.
        checkpoint_seconds: Seconds between checkpoints; Ctrl-C saves one, too.
    """
    if resume is not None and (out is not None or config is not None):
        raise FedpubError(f"--resume {resume} has its own directory and configuration; leave --out and --config out")
    if resume is not None:
        config = resume / "config.json"
    if config is not None:
        held = Experiment.from_json(RunDirectory.config(resume) if resume else _read(config), config)
        plan = held.resolve()
        _check_agreement(plan.experiment, experiment, typed, config)
    else:
        plan = experiment.resolve()
    place = resume or out
    tracker, found = Tracker(track, plan.experiment, place or Path()), None
    with progress(quiet, verbose) as bar:

        def on_round(row: Row, rounds: int) -> None:
            bar.on_round(row, rounds)
            tracker.on_round(row)

        try:
            found = run(
                plan,
                place,
                resume=resume is not None,
                root=data_root,
                chunk=chunk,
                max_memory=max_memory,
                checkpoint_seconds=checkpoint_seconds,
                keep_checkpoint=keep_checkpoint,
                on_round=on_round,
                on_step=bar.on_step,
                on_prepare=bar.on_prepare,
            )
        finally:
            tracker.close(found.summary if found else None)
    show_result(found, json)


def _check_agreement(held: Experiment, asked: Experiment, typed: Typed, place: Path) -> None:
    """Raise an error if a flag contradicts the configuration that is used."""
    kept = {**vars(held), **held.options}
    for name, value in {**vars(asked), **asked.options}.items():
        if name in typed and value != kept.get(name):
            raise FedpubError(
                f"{place} belongs to another experiment: its {name} is {kept.get(name)!r}, not {value!r}; "
                "leave that flag out, or start a new run"
            )


def _read(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FedpubError(f"cannot read {config} ({error}); give the config.json of a run") from error
