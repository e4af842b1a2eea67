"""The command line: verbs only, no logic.

A verb is one function: its signature becomes its flags, its docstring its help with one example that works.
Nothing heavy is imported before the verb is known, so that help answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from fedpub.errors import FedpubError, unknown
from fedpub.version import __version__

# What is typed: (module:function, one line for the overview).
VERBS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "see it work: half a minute on a built-in graph, no download"),
    "run": ("run:run_", "train one method on the clients of one graph"),
    "predict": ("predict:predict", "classes of a graph's nodes by a personal model"),
    "compare": ("compare:compare", "several methods on the same data and seeds, in one table"),
    "reproduce": ("reproduce:reproduce", "the paper's tables and figures by name"),
    "report": ("report:report", "runs as one page to look at, or as tables and figures for a paper"),
    "watch": ("report:watch", "the same page live while a run goes on"),
    "deploy local": ("coordinator:local", "a whole federation on this machine, with TLS and keys"),
    "coordinator init": ("coordinator:init", "make a federation: certificates, admission list, what is run"),
    "coordinator admit": ("coordinator:admit", "admit sites by their public keys"),
    "coordinator start": ("coordinator:start", "serve the sites and play the run; --resume goes on with it"),
    "site init": ("site:init", "make a site: its key, its graph, its coordinator"),
    "site start": ("site:start", "take part, where the data is"),
    "site join": ("site:join", "a new site gets a model from a finished federation"),
    "site audit": ("site:audit", "exactly what leaves this site"),
    "status": ("coordinator:status", "how a federation's run stands"),
    "bench engine": ("bench:engine", "seconds per round, beside a plain loop with PyG's layers"),
    "bench methods": ("bench:methods", "seconds per round of every method, beside FedAvg's"),
    "bench aggregate": ("bench:aggregate", "FED-PUB's server step, over all clients and the most similar ones"),
    "bench partition": ("bench:partition", "dividing a graph of a million edges"),
    "bench scale": ("bench:scale", "what a client costs when there are thousands"),
    "bench sparse": ("bench:sparse", "from which share of non-zeros on a dense product is faster"),
    "bench wire": ("bench:wire", "what a round sends, counted from encoded messages"),
    "bench robust": ("bench:robust", "what one hostile client does to the others, with every defence"),
    "bench all": ("bench:all_", "all of these"),
    "data list": ("data:list_", "the graphs that are known by name"),
    "data stats": ("data:stats", "what the clients of a partition look like"),
    "data partition": ("data:partition", "divide a graph among clients and save who holds what"),
    "data import": ("data_import:import_", "your own graph from CSV or Parquet tables"),
    "doctor": ("doctor:doctor", "what is here, what is missing or broken, and what to do about it"),
    "completion": ("completion:completion", "a script that lets bash, zsh or fish complete what you type"),
}
STATUS = """exit status:  0 done
              1 found a problem (doctor), or an unexpected error
              2 something that you can mend
              130 interrupted"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; its exit status, as the overview has it."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:  # `help run` is `run --help`
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print(_overview())
        return 0
    if words[0] in ("-V", "--version"):
        print(f"fedpub {__version__}")
        return 0
    try:
        verb, rest = _split(words)
        if verb is None:
            print(_overview(words[0]))
            return 0
        return _run(verb, rest)
    except FedpubError as error:
        if "--verbose" in words:
            traceback.print_exception(error)
        print(f"fedpub: {error.with_flags()}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("fedpub: interrupted; a run that has an --out goes on with fedpub run --resume OUT", file=sys.stderr)
        return 130


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """The verb and its arguments; no verb where only a group such as `data` was given."""
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
    _check_once(arguments)
    try:
        import rich

        from fedpub.cli.flags import call

        function = action(verb)
    except ImportError as error:
        if str(error.name).startswith("fedpub"):  # a mistake in here
            raise
        if verb == "doctor":  # it tells of that, too
            return _doctor(arguments)
        said = " ".join(str(error).split())
        raise FedpubError(f"{error.name or 'a package'} cannot be imported ({said}); see fedpub doctor") from error
    rich.reconfigure(stderr=True)  # for bars that name no console, such as a download's
    if os.environ.get("NO_COLOR") and {"-h", "--help"} & {*arguments}:
        os.environ["TERM"] = "dumb"  # all that tyro's help heeds
    return call(function, f"fedpub {verb}", arguments) or 0


def _check_once(arguments: list[str]) -> None:
    """That no flag is given twice, of which the last would win without a word."""
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
    """The function behind a verb; what it returns is the exit status, None is 0."""
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
