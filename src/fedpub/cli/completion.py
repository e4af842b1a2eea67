"""The verb `completion`: static scripts, so that a TAB starts no Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Literal

import tyro

from fedpub.cli import VERBS
from fedpub.cli.typed import Verb, known_verbs
from fedpub.version import __version__

Shell = Literal["bash", "zsh", "fish"]


def completion(shell: tyro.conf.Positional[Shell]) -> None:
    """Completion script of a shell, for verbs, flags and names; to be generated again after an update.

    bash: fedpub completion bash > ~/.local/share/bash-completion/completions/fedpub

    zsh: fedpub completion zsh > ~/.zfunc/_fedpub, with fpath+=(~/.zfunc) before compinit in ~/.zshrc

    fish: fedpub completion fish > ~/.config/fish/completions/fedpub.fish

    Example: fedpub completion bash

    Args:
        shell: Shell.
    """
    print({"bash": bash, "zsh": zsh, "fish": fish}[shell](known_verbs()))


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
    """The part of a verb that bash and zsh share: the values of the current flag; they list flags differently."""
    same: dict[tuple[int, tuple[str, ...], bool], list[str]] = {}
    for flag in verb.flags:
        same.setdefault((flag.takes, flag.values, flag.files), []).extend(flag.names)
    same.pop((1, (), False), None)  # the default
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
