"""The command line: verbs only, no logic.

A verb is one function: its signature becomes its flags, and its docstring its help, with one working example.
Nothing heavy is imported before the verb is known, so that help is instant.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fedpub.cli.ending import Terminated, at_once
from fedpub.cli.lines import LOG_JSON, as_line
from fedpub.errors import FedpubError, Note, unknown
from fedpub.version import __version__

# By name: (module:function, one line for the overview).
VERBS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "FED-PUB at work: half a minute on a built-in graph, no download"),
    "run": ("run:run_", "train one method on the clients of one graph"),
    "predict": ("predict:predict", "class predictions of a personal model for a graph"),
    "compare": ("compare:compare", "several methods on the same data and seeds, in one table"),
    "sweep": ("sweep:sweep", "many values of settings, of which validation chooses the best"),
    "reproduce": ("reproduce:reproduce", "tables and figures of the paper, by name"),
    "attack": ("attack:attack", "what a curious coordinator learns of each client, beside a guess"),
    "report": ("report:report", "runs as one HTML page, or as tables and figures for a paper"),
    "watch": ("report:watch", "the same page, live, for a run in progress"),
    "deploy local": ("coordinator:local", "a whole federation on this machine, with TLS and keys"),
    "coordinator init": ("coordinator:init", "make a federation: certificates, admission list, experiment"),
    "coordinator admit": ("coordinator:admit", "admit sites by their public keys"),
    "coordinator remove": ("coordinator:remove", "remove a site, also from a run in progress"),
    "coordinator rotate": ("coordinator:rotate", "admit a site by a new key"),
    "coordinator renew": ("coordinator:renew", "renew the certificate, also during a run"),
    "coordinator start": ("coordinator:start", "serve the sites and run the federation; --resume continues it"),
    "site init": ("site:init", "make a site's folder: its key, its graph, its coordinator"),
    "site rotate": ("site:rotate", "make a new key for a site"),
    "site start": ("site:start", "take part in a federation"),
    "site join": ("site:join", "get a model from a finished federation"),
    "site policy": ("policy:policy", "what a site takes part in, shown and changed"),
    "site trust": ("trust:trust", "other sites that a site trusts, by keys that people have compared"),
    "site audit": ("audit:audit", "everything that leaves this site"),
    "audit verify": ("audit:verify", "check of an audit log, alone and against the other end's"),
    "status": ("coordinator:status", "progress of a federation"),
    "bench engine": ("bench:engine", "seconds per round, against a plain loop with PyG layers"),
    "bench methods": ("bench:methods", "seconds per round of every method, against FedAvg"),
    "bench models": ("bench:models", "seconds per round of every model, against twin"),
    "bench aggregate": ("bench:aggregate", "FED-PUB's server step over all clients, and over the most similar"),
    "bench partition": ("bench:partition", "time to divide a graph with a million edges"),
    "bench scale": ("bench:scale", "cost per client with thousands of clients"),
    "bench sparse": ("bench:sparse", "share of non-zeros above which dense products are faster"),
    "bench wire": ("bench:wire", "bytes per round, counted from encoded messages"),
    "bench robust": ("bench:robust", "harm done by one hostile client, under every defence"),
    "bench deploy": ("bench:deploy", "seconds per round of a deployed federation, against one process and Flower"),
    "bench secure": ("bench:secure", "a deployed round with secure aggregation beside a plain one"),
    "bench load": ("bench:load", "rounds while strangers crowd the coordinator's port"),
    "bench soak": ("bench:soak", "memory and open files through thousands of rounds with faults"),
    "bench all": ("bench:all_", "all benchmarks"),
    "data list": ("data:list_", "graphs known by name"),
    "data stats": ("data:stats", "statistics of the clients of a partition"),
    "data partition": ("data:partition", "divide a graph among clients and save the result"),
    "data import": ("data_import:import_", "your own graph from CSV or Parquet tables"),
    "doctor": ("doctor:doctor", "check of the installation, with a fix for every problem"),
    "completion": ("completion:completion", "completion script for bash, zsh or fish"),
}
STATUS = """exit status:  0 done
              1 found a problem (doctor, audit verify), or an unexpected error
              2 a problem that you can fix
              130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit status, as listed in the overview."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:  # `help run` is `run --help`
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"fedpub {__version__}")
        return 0

    def say(sentence: str, event: str = "error", level: str = "error") -> None:
        print(as_line(sentence, event, level) if LOG_JSON in words else f"fedpub: {sentence}", file=sys.stderr)

    try:
        verb, rest = _split(words)
        if verb is None:
            print(_overview(words[0]))
            return 0
        with _notes_shown(lambda text: say(text, "note", "warning")), at_once(verb, lambda text: say(text, "ended")):
            return _run(verb, rest)
    except FedpubError as error:
        if "--verbose" in words:
            traceback.print_exception(error)
        say(error.with_flags())
        return 2
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Terminated:
        say("ended by SIGTERM", "ended")
        return 130
    except KeyboardInterrupt:
        say("interrupted; resume a run that has an --out with fedpub run --resume OUT", "interrupted")
        return 130
    except Exception as error:
        if LOG_JSON not in words:
            raise
        where = "".join(traceback.format_exception(error))
        print(as_line(f"unexpected {error!r}", "crash", "error", traceback=where), file=sys.stderr)
        return 1


@contextmanager
def _notes_shown(say: Callable[[str], None]) -> Iterator[None]:
    """Notes as sentences on standard error, each text once; other warnings as usual."""
    said: set[str] = set()
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, Note):
            usual(message, category, *place, **more)
        elif str(message) not in said:
            said.add(str(message))
            say(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", Note)
        warnings.showwarning = show
        yield


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """The verb and its arguments; no verb if only a group such as `data` was given."""
    two = " ".join(words[:2])
    if two in VERBS:
        return two, words[2:]
    if words[0] in VERBS:
        return words[0], words[1:]
    group = [verb.removeprefix(f"{words[0]} ") for verb in VERBS if verb.startswith(f"{words[0]} ")]
    if not group:
        raise unknown("command", words[0], dict.fromkeys(verb.split()[0] for verb in VERBS))
    if len(words) == 1 or words[1] in ("-h", "--help"):
        return None, []
    raise unknown(f"command after {words[0]!r}", words[1], group)


def _run(verb: str, arguments: list[str]) -> int:
    arguments = _gathered(arguments)
    _check_once(arguments)
    try:
        import rich

        from fedpub.cli.flags import call

        function = action(verb)
    except ImportError as error:
        if str(error.name).startswith("fedpub"):  # a bug in fedpub
            raise
        if verb == "doctor":  # it reports such errors itself
            return _doctor(arguments)
        said = " ".join(str(error).split())
        raise FedpubError(f"{error.name or 'a package'} cannot be imported ({said}); see fedpub doctor") from error
    rich.reconfigure(stderr=True)  # for bars that name no console, such as a download's
    if os.environ.get("NO_COLOR") and {"-h", "--help"} & {*arguments}:
        os.environ["TERM"] = "dumb"  # the only setting that tyro's help respects
    return call(function, f"fedpub {verb}", arguments) or 0


def _gathered(arguments: list[str]) -> list[str]:
    """The arguments with the values of every --set after the first one: it may be repeated."""
    others: list[str] = []
    values: list[str] = []
    here = others
    for word in arguments:
        flag, equals, value = word.partition("=")
        if flag == "--set":
            here = values
            values += [value] if equals else []
        else:
            here = others if word.startswith("--") else here
            here.append(word)
    return [*others, "--set", *values] if "--set" in {word.partition("=")[0] for word in arguments} else others


def _check_once(arguments: list[str]) -> None:
    """Raise an error if a flag is given twice: the last one would silently win."""
    seen: dict[str, str] = {}
    for flag in (word.partition("=")[0].replace("_", "-") for word in arguments if word.startswith("--")):
        before = seen.setdefault(flag.replace("--no-", "--"), "")
        if before:
            what = f"{flag} is given twice" if flag == before else f"{before} and {flag} contradict each other"
            raise FedpubError(f"{what}; give one of them")
        seen[flag.replace("--no-", "--")] = flag


def _doctor(arguments: list[str]) -> int:
    from fedpub.cli.doctor import doctor

    return doctor(json="--json" in arguments)


def action(verb: str) -> Callable[..., int | None]:
    """The function of a verb; it returns the exit status, with None for 0."""
    module, function = VERBS[verb][0].split(":")
    found: Callable[..., int | None] = getattr(importlib.import_module(f"fedpub.cli.{module}"), function)
    return found


def _overview(group: str = "") -> str:
    shown = {verb: line for verb, (_, line) in VERBS.items() if not group or verb.startswith(f"{group} ")}
    width = max(map(len, shown))
    lines = [f"  {verb:<{width}}  {line}" for verb, line in shown.items()]
    return "\n".join(
        [
            "fedpub: personalised subgraph federated learning",
            "",
            "usage: fedpub VERB [flags]      fedpub VERB --help shows its flags and an example",
            "",
            *lines,
            "",
            "  --version  --help",
            "",
            STATUS,
        ]
    )
