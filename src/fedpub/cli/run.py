"""The verb `run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import tyro

from fedpub.algorithms import METHODS, check_owned, method_called
from fedpub.cli.show import show_result
from fedpub.errors import FedpubError
from fedpub.experiment import Experiment
from fedpub.runs.progress import progress
from fedpub.runs.simulated import run
from fedpub.runs.tracking import Tracker
from fedpub.store.directory import RunDirectory
from fedpub.store.record import Row

SETTINGS = {one.name for one in fields(Experiment)}


@dataclass(frozen=True)
class OneRun(Experiment):
    """What a result depends on. What is None follows the paper."""

    options: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)


def run_verb(arguments: list[str]) -> Callable[..., None]:
    """The verb for the method that the arguments name: its hyper-parameters are flags beside the experiment's."""
    chosen = named_method(arguments)
    kind: Any = METHODS[chosen]

    # The annotations follow below: the method's type is known only now.
    def run_(  # type: ignore[no-untyped-def]
        experiment=OneRun(method=chosen),  # noqa: B008
        method=kind(),  # noqa: B008
        out=None,
        resume=None,
        config=None,
        data_root=None,
        chunk=None,
        max_memory=None,
        checkpoint_seconds=60.0,
        track=(),
        quiet=False,
        verbose=False,
        json=False,
    ) -> None:
        """Train one method on the clients of one graph.

        The flags of the method are those of the --method that is given; `fedpub run --method gcfl --help` shows GCFL's.

        Example: fedpub run --dataset communities --method fedpub --rounds 5 --out runs/first

        Args:
            out: Run directory to write; it must not exist yet.
            resume: Run directory to continue, with its own configuration.
            config: Take the experiment from the config.json of another run instead of from flags.
            data_root: Folder of the raw files; else FEDPUB_DATA, else the cache folder.
            chunk: Clients that are computed at a time: less memory, the same result.
            max_memory: GiB that the run may take: clients are then computed in chunks, and their states kept on disk
                where they do not fit.
            checkpoint_seconds: Time between two checkpoints; Ctrl-C saves one, too.
            track: Also tell tensorboard or mlflow of every round; they write beside the run.
            quiet: No progress bar: only the result.
            verbose: A line for every round on the error output, and where an error came from.
            json: Print the result as JSON.
        """
        wanted = replace(Experiment(**vars(experiment)), method=chosen, options=asdict(method))
        if resume is not None and (out is not None or config is not None):
            raise FedpubError(
                f"--resume {resume} has its own directory and configuration; leave --out and --config out"
            )
        if resume is not None:
            config = resume / "config.json"
        if config is not None:
            held = Experiment.from_json(RunDirectory.config(resume) if resume else _read(config), config)
            plan = held.resolve()
            default = Experiment(method=chosen, options=asdict(kind()))
            _check_agreement(plan.experiment, wanted, default, arguments, config)
        else:
            plan = wanted.resolve()
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
                    on_round=on_round,
                    on_step=bar.on_step,
                )
            finally:
                tracker.close(found.summary if found else None)
        show_result(found, json)

    flat, path = tyro.conf.OmitArgPrefixes, Path | None
    run_.__annotations__ = {"experiment": Annotated[OneRun, flat], "method": Annotated[kind, flat], "return": None}
    run_.__annotations__ |= {"out": path, "resume": path, "config": path, "data_root": path, "chunk": int | None}
    run_.__annotations__ |= {
        "max_memory": float | None,
        "checkpoint_seconds": float,
        "track": tuple[str, ...],
        **dict.fromkeys(("quiet", "verbose", "json"), bool),
    }
    return run_


def _check_agreement(held: Experiment, given: Experiment, default: Experiment, words: list[str], place: Path) -> None:
    """That no flag asks for something else than the configuration that is used."""
    said = any(word.split("=")[0] == "--method" for word in words)
    pairs = [
        (one.name, getattr(held, one.name), getattr(given, one.name), getattr(default, one.name))
        for one in fields(given)
    ]
    pairs = [pair for pair in pairs if pair[0] not in ("method", "options")]
    pairs += [(name, held.options.get(name), value, default.options[name]) for name, value in given.options.items()]
    if said:
        pairs.append(("method", held.method, given.method, None))
    for name, kept, asked, usual in pairs:
        if asked not in (usual, kept):
            raise FedpubError(
                f"{place} belongs to another experiment: its {name} is {kept!r}, not {asked!r}; leave that flag out, "
                "or start a new run"
            )


def named_method(arguments: list[str]) -> str:
    """The value of --method, which decides which other flags there are."""
    found = Experiment().method
    for word, following in pairwise([*arguments, ""]):
        if word == "--method":
            found = following
        elif word.startswith("--method="):
            found = word.partition("=")[2]
    found = method_called(found)
    words = [word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")]
    check_owned((word.removeprefix("no_") for word in words if word not in SETTINGS), found)
    return found


def _read(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FedpubError(f"cannot read {config} ({error}); give the config.json of a run") from error
