"""The verb `completion`.

What can be typed is read from the verbs' own help, so that nothing is listed twice. docs/generate.py keeps it in a file
of the package: helping each verb imports all of fedpub, which takes seconds. The scripts are static text, and no Python
is started by a TAB.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal, get_args

import tyro

from fedpub.cli import VERBS, main
from fedpub.version import __version__

WIDTH = "80"  # of the help that is read: at this width it has one column
# A flag begins a line of the help; its explanation stands two spaces behind it, or further in on the lines below.
FLAG = re.compile(r"^(?:│ |  )(--?\w.*?)(?:\s{2,}(.*?))?[\s│]*$")
NAME = re.compile(r"(?:^|, )(--?\w[\w-]*)")
BELOW = re.compile(r"^(?:│ |  )\s{4,}(\S.*?)[\s│]*$")

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: tyro.conf.Positional[Shell]) -> None:
    """A script that lets a shell complete verbs, flags and names; it is made once, and again after an update.

    bash: fedpub completion bash > ~/.local/share/bash-completion/completions/fedpub

    zsh: fedpub completion zsh > ~/.zfunc/_fedpub, with fpath+=(~/.zfunc) before compinit in ~/.zshrc

    fish: fedpub completion fish > ~/.config/fish/completions/fedpub.fish

    Example: fedpub completion bash

    Args:
        shell: Which.
    """
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](known_verbs()))


@dataclass(frozen=True)
class Flag:
    names: tuple[str, ...]
    takes: int  # 0: nothing, 1: a value, 2: any number of them
    values: tuple[str, ...]
    files: bool  # a file's name is possible, too
    about: str


@dataclass(frozen=True)
class Verb:
    name: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]  # that can stand without a flag
    files: bool


@cache
def _file() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files("fedpub.cli").joinpath("typed.json").read_text(encoding="utf-8"))
    return found


def known_verbs() -> list[Verb]:
    """What `verbs` gives, from the file."""
    return [
        Verb(
            verb["name"],
            tuple(
                Flag(tuple(one["names"]), one["takes"], tuple(one["values"]), one["files"], one["about"])
                for one in verb["flags"]
            ),
            tuple(verb["words"]),
            verb["files"],
        )
        for verb in _file()["verbs"]
    ]


def known_recipes() -> dict[str, str]:
    """The titles of the paper's tables and figures, from the file."""
    recipes: dict[str, str] = _file()["recipes"]
    return recipes


def typed() -> str:
    """What the file has to hold; a verb is a line."""
    from fedpub.paper.recipes import RECIPES

    recipes = json.dumps({name: recipe.title for name, recipe in RECIPES.items()}, indent=1, ensure_ascii=False)
    lines = ",\n".join(json.dumps(asdict(verb), ensure_ascii=False) for verb in verbs())
    return f'{{"recipes": {recipes},\n"verbs": [\n{lines}\n]}}'


def verbs() -> list[Verb]:
    """Every verb with its flags; those of all methods where they depend on the method."""
    from fedpub.algorithms import METHODS
    from fedpub.paper.recipes import RECIPES

    known, free = _known(), {"reproduce": ("all", *RECIPES), "completion": get_args(Shell)}
    found = []
    for verb, (where, _) in VERBS.items():
        choices = [["--method", method] for method in METHODS] if where.endswith("_verb") else [[]]
        texts = [_help([*verb.split(), *words]) for words in choices]
        flags = {flag.names: flag for text in texts for flag in _flags(text, known)}
        positional = re.search(r"positional arguments(.*?)\n\W*options", texts[0], re.S)
        words = free.get(verb, ())
        found.append(Verb(verb, tuple(flags.values()), words, bool(positional and "PATH" in positional[1])))
    return found


def _known() -> dict[str, tuple[str, ...]]:
    """The values of flags that take a name."""
    from fedpub.algorithms import METHODS
    from fedpub.data.clients.partition import SCENARIOS
    from fedpub.data.datasets import names
    from fedpub.models import MODELS
    from fedpub.runs.tracking import SINKS
    from fedpub.tasks import TASKS

    known: dict[str, Iterable[str]] = {"--method": METHODS, "--methods": METHODS, "--task": TASKS, "--track": SINKS}
    known |= {"--model": MODELS, "--device": ("cpu", "cuda")}
    known |= dict.fromkeys(("--dataset", "--datasets", "--graph"), names())
    known |= dict.fromkeys(("--scenario", "--scenarios"), SCENARIOS)
    return {flag: tuple(values) for flag, values in known.items()}


def _help(words: Sequence[str]) -> str:
    said, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with redirect_stdout(said), suppress(SystemExit):
            main([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return said.getvalue()


def _flags(text: str, known: dict[str, tuple[str, ...]]) -> list[Flag]:
    rows: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if begun := FLAG.match(line):
            rows.append((begun[1], [begun[2] or ""]))
        elif rows and (more := BELOW.match(line)):
            rows[-1][1].append(more[1])
    found = []
    for head, about in rows:
        names = tuple(NAME.findall(head))
        kind = head.rpartition(names[-1])[2].strip()  # what follows it: INT, {dot,mlp}, [STR [STR ...]] or nothing
        files = "PATH" in kind or "FILE" in kind
        values = next((tuple(found.split(",")) for found in re.findall(r"\{([\w,-]+)\}", kind) if found != "None"), ())
        if not files and not values:
            values = known.get(names[-1], ())
        takes = 2 if " " in kind or kind == "[FILE]" else 1 if kind else 0
        first = re.split(r"[.;:](?: |$)| \(default", " ".join(about).replace("`", "").strip())[0]
        found.append(Flag(names, takes, values, files or names[-1] in ("--dataset", "--graph"), first))
    return found


def _first_words(found: Sequence[Verb]) -> dict[str, list[str]]:
    """The first words of verbs, and the second words that can follow them."""
    firsts: dict[str, list[str]] = {}
    for verb in found:
        first, _, second = verb.name.partition(" ")
        firsts.setdefault(first, []).extend([second] if second else [])
    return firsts


def _about(verb: str, seconds: Sequence[str]) -> str:
    return VERBS[verb][1] if verb in VERBS else ", ".join(seconds)


def _arm(verb: Verb, flags: str) -> str:
    """What bash and zsh both know of a verb, for a flag that is being given; they list its flags differently."""
    same: dict[tuple[int, tuple[str, ...], bool], list[str]] = {}
    for flag in verb.flags:
        same.setdefault((flag.takes, flag.values, flag.files), []).extend(flag.names)
    same.pop((1, (), False), None)  # how it is where nothing is said
    lines = [f"    {shlex.quote(verb.name)})", f"      flags={flags}"]
    lines += [f'      names="{" ".join(verb.words)}"'] if verb.words else []
    lines += ["      paths=1"] if verb.files else []
    lines.append("      case $flag in")
    for (takes, values, files), names in same.items():
        listed = f' values="{" ".join(values)}"' if values else ""
        lines.append(f"        {'|'.join(names)}) takes={takes}{listed}{' files=1' if files else ''};;")
    return "\n".join([*lines, "      esac;;"])


BASH = r"""# Made by fedpub %(version)s: fedpub completion bash
_fedpub() {
  local cur=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} i at=2
  local second= flag= takes=1 flags= values= names= files= paths=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "%(firsts)s --help --version" -- "$cur"))
    return
  fi
  case $verb in
%(seconds)s
  esac
  if [[ -n $second ]]; then
    if ((COMP_CWORD == 2)); then
      COMPREPLY=($(compgen -W "$second" -- "$cur"))
      return
    fi
    verb="$verb ${COMP_WORDS[2]}" at=3
  fi
  # The last flag before the cursor; bash takes --flag=value for three words.
  for ((i = COMP_CWORD - 1; i >= at; i--)); do
    if [[ ${COMP_WORDS[i]} == -[a-z-]* ]]; then
      flag=${COMP_WORDS[i]}
      break
    fi
  done
  if [[ -n $flag && ${COMP_WORDS[i + 1]} == "=" ]]; then
    i=$((i + 1))
    if [[ $cur == "=" ]]; then cur= i=$((COMP_CWORD - 1)); fi
  fi
  case $verb in
%(arms)s
  esac
  if [[ -n $flag && $cur != -* ]] && ((takes == 2 || (takes == 1 && i == COMP_CWORD - 1))); then
    COMPREPLY=($(compgen -W "$values" -- "$cur"))
    # Where nothing is found bash offers files: not for a number.
    if [[ -z $files ]]; then compopt +o default +o bashdefault 2> /dev/null; fi
  elif [[ $cur == -* || -z $names$paths ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  else
    COMPREPLY=($(compgen -W "$names" -- "$cur"))
  fi
}
complete -o bashdefault -o default -F _fedpub fedpub"""


def bash(found: Sequence[Verb]) -> str:
    firsts = _first_words(found)
    return BASH % {
        "version": __version__,
        "firsts": " ".join(firsts),
        "seconds": "\n".join(f'    {name}) second="{" ".join(words)}";;' for name, words in firsts.items() if words),
        "arms": "\n".join(
            _arm(verb, '"' + " ".join(name for flag in verb.flags for name in flag.names) + '"') for verb in found
        ),
    }


ZSH = r"""#compdef fedpub
# Made by fedpub %(version)s: fedpub completion zsh
_fedpub() {
  local cur=$words[CURRENT] verb=$words[2] i at=3
  local flag= takes=1 values= names= files= paths=
  local -a firsts second flags
  firsts=(%(firsts)s)
  if ((CURRENT == 2)); then
    _describe verb firsts
    return
  fi
  case $verb in
%(seconds)s
  esac
  if (($#second)); then
    if ((CURRENT == 3)); then
      _describe verb second
      return
    fi
    verb="$verb $words[3]" at=4
  fi
  # The last flag before the cursor.
  for ((i = CURRENT - 1; i >= at; i--)); do
    if [[ $words[i] == -[a-z-]* ]]; then
      flag=$words[i]
      break
    fi
  done
  if [[ $cur == --*=* ]]; then
    flag=${cur%%=*} cur=${cur#*=} i=$((CURRENT - 1))
    compset -P "*="
  fi
  case $verb in
%(arms)s
  esac
  if [[ -n $flag && $cur != -* ]] && ((takes == 2 || (takes == 1 && i == CURRENT - 1))); then
    compadd -- ${=values}
    if [[ -n $files ]]; then _files; fi
  elif [[ $cur == -* || -z $names$paths ]]; then
    _describe -o flag flags
  else
    compadd -- ${=names}
    if [[ -n $paths ]]; then _files; fi
  fi
}
if [[ $funcstack[1] == _fedpub ]]; then
  _fedpub "$@"
else
  compdef _fedpub fedpub
fi"""


def zsh(found: Sequence[Verb]) -> str:
    firsts = _first_words(found)

    def described(pairs: Iterable[tuple[str, str]]) -> str:
        return " ".join(shlex.quote(f"{name}:{about}" if about else name) for name, about in pairs)

    return ZSH % {
        "version": __version__,
        "firsts": described((name, _about(name, seconds)) for name, seconds in firsts.items()),
        "seconds": "\n".join(
            f"    {name}) second=({described((word, VERBS[f'{name} {word}'][1]) for word in words)});;"
            for name, words in firsts.items()
            if words
        ),
        "arms": "\n".join(
            _arm(verb, f"({described((name, flag.about) for flag in verb.flags for name in flag.names)})")
            for verb in found
        ),
    }


FISH = r"""# Made by fedpub %(version)s: fedpub completion fish
# The words after fedpub begin with these.
function __fedpub_at
    set -l typed (commandline -opc)
    set -e typed[1]
    string match -q -- "$argv *" "$typed "
end
# Only these words were typed so far.
function __fedpub_only
    set -l typed (commandline -opc)
    set -e typed[1]
    test "$typed" = "$argv"
end
# The last flag before the cursor is this one.
function __fedpub_gives
    set -l flags (commandline -opc | string match -r -- '^--[a-z].*')
    test "$flags[-1]" = "$argv"
end
complete -c fedpub -f
%(lines)s"""


def fish(found: Sequence[Verb]) -> str:
    lines = []

    def add(condition: str, rest: str, about: str) -> None:
        lines.append(f"complete -c fedpub -n {_fish(condition)} {rest}" + (f" -d {_fish(about)}" if about else ""))

    firsts = _first_words(found)
    for name, seconds in firsts.items():
        add("__fedpub_only", f"-a {name}", _about(name, seconds))
        for word in seconds:
            add(f"__fedpub_only {name}", f"-a {word}", VERBS[f"{name} {word}"][1])
    for verb in found:
        at = f"__fedpub_at {verb.name}"
        if verb.words:
            add(at, f"-a {_fish(' '.join(verb.words))}", "")
        if verb.files:
            add(at, "-F", "")
        for flag in verb.flags:
            values = f" -a {_fish(' '.join(flag.values))}" if flag.values else ""
            files = " -F" if flag.files else " -f"
            for name in flag.names:
                kind = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                add(at, kind + (f" -r{files}{values}" if flag.takes else ""), flag.about)
            if flag.takes == 2 and (values or flag.files):
                add(f"{at}; and __fedpub_gives {flag.names[-1]}", (files + values).strip(), "")
    return FISH % {"version": __version__, "lines": "\n".join(lines)}


def _fish(text: str) -> str:
    """A word as fish quotes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
