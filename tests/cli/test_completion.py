"""`fedpub completion`, in real shells."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import pytest

from fedpub.algorithms import METHODS, options_of
from fedpub.cli import VERBS, action, main
from fedpub.cli.completion import bash, fish, zsh
from fedpub.cli.flags import Settings, takes_method
from fedpub.cli.typed import Verb, known_recipes, known_verbs, verbs
from fedpub.data.datasets import names
from fedpub.experiment import Experiment
from fedpub.paper.recipes import RECIPES
from small import read_terminal

# What is typed, up to the word under the cursor: some of what is offered, and some of what is not.
OFFERED = [
    (["r"], {"run", "reproduce", "report"}, {"data", "compare"}),
    (["data", ""], {"list", "stats", "partition", "import"}, {"run", "--json"}),
    (["data", "stats", "--c"], {"--clients"}, {"--scenario"}),
    (["run", "--ta"], {"--task", "--tau"}, {"--track"}),
    (["run", "--generator-"], {"--generator-epochs"}, set()),  # of another method than the usual one
    (["run", "--method", ""], set(METHODS), {"--out"}),
    (["run", "--method", "gcfl", "--"], {"--out", "--quiet"}, {"gcfl", "--no-quiet"}),
    (["run", "--quiet", "--js"], {"--json"}, {"--out"}),
    (["deploy", "local", "--method", "fedp"], {"fedper", "fedprox", "fedpub"}, {"local"}),
    (["compare", "--methods", "local", "g"], {"gcfl"}, {"fedavg"}),
    (["compare", "--dataset", "cora", "c"], {n for n in names() if n.startswith("c")}, {"photo"}),
    (["data", "partition", "--scenario", "d"], {"disjoint", "dirichlet"}, {"random"}),
    (["run", "--model", ""], {"gcn", "sage"}, set()),
    (["run", "--task", "l"], {"link-prediction"}, set()),
    (["run", "--measure", ""], {"function", "label"}, set()),
    (["run", "--rounds", ""], set(), {"gcn", "--out", "here.txt"}),
    (["reproduce", "table-d"], {"table-disjoint"}, {"figure-heatmaps"}),
    (["completion", ""], {"bash", "zsh", "fish"}, set()),
]
FILES = [["report", "here"], ["run", "--out", "here"], ["predict", "--model", "here"], ["run", "--dataset", "here"]]


def shell(name: str) -> str:
    if not (path := shutil.which(name)):
        pytest.skip(f"{name} is not installed")
    return path


@pytest.fixture(scope="module")
def found() -> list[Verb]:
    return verbs()


@pytest.fixture(scope="module")
def scripts(found: list[Verb], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three scripts, and a file to be found, in a folder."""
    folder = tmp_path_factory.mktemp("completion")
    for make in (bash, zsh, fish):
        (folder / make.__name__).write_text(make(found) + "\n")
    (folder / "here.txt").write_text("")
    return folder


def said(folder: Path, *command: str, path: str = "/nowhere") -> str:
    """What a shell prints that finds no other program: no Python can be started."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PATH": path}, timeout=60)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def by_bash(folder: Path, words: list[str]) -> set[str]:
    typed = " ".join(shlex.quote(word) for word in ["fedpub", *words])
    code = f'source ./bash; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _fedpub; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return set(said(folder, shell("bash"), "--norc", "-c", code).split())


# What zsh's own functions are given, as a line each.
ZSH = """
compdef() { :; }
_describe() { [[ $1 == -o ]] && shift; local one; for one in "${(@P)2}"; do print -r -- "${one%%:*}"; done }
compadd() { shift; [[ $# -gt 0 ]] && print -rl -- "$@"; return 0 }
_files() { print -rl -- *.txt }
compset() { :; }
source ./zsh
"""


def by_zsh(folder: Path, words: list[str]) -> set[str]:
    typed = " ".join(shlex.quote(word) for word in ["fedpub", *words])
    code = f"{ZSH}\nwords=({typed}); CURRENT={len(words) + 1}; _fedpub"
    found = set(said(folder, shell("zsh"), "-f", "-c", code).split())
    return {word for word in found if word.startswith(words[-1])}  # zsh itself does so


def by_fish(folder: Path, words: list[str]) -> set[str]:
    line = shlex.quote(" ".join(["fedpub", *words]))
    code = f"source ./fish; complete -C {line}"
    told = said(folder, shell("fish"), "--no-config", "-c", code, path="/usr/bin:/bin")
    return {line.split("\t")[0] for line in told.splitlines()}


@pytest.mark.parametrize("ask", [by_bash, by_zsh, by_fish])
def test_what_is_offered(ask, scripts):
    for words, there, not_there in OFFERED:
        found = ask(scripts, words)
        assert there <= found, words
        assert not not_there & found, words


@pytest.mark.parametrize("ask", [by_zsh, by_fish])
def test_files_are_offered_where_one_is_wanted(ask, scripts):
    for words in FILES:
        assert "here.txt" in ask(scripts, words), words


def test_bash_falls_back_to_files(scripts):
    """Nothing is offered, and the script asks for files then; for a number it asks for nothing."""
    for words in FILES:
        assert by_bash(scripts, words) == set(), words
    said_of = said(scripts, shell("bash"), "--norc", "-c", "source ./bash; complete -p fedpub")
    assert said_of == "complete -o bashdefault -o default -F _fedpub fedpub\n"


@pytest.mark.parametrize("ask", [by_bash, by_zsh])
def test_a_value_behind_an_equals_sign(ask, scripts):
    """bash takes it for three words, zsh for one."""
    if ask is by_bash:
        assert by_bash(scripts, ["run", "--method", "=", "g"]) == {"gcfl"}
        assert by_bash(scripts, ["run", "--method", "="]) == set(METHODS)
        assert "--out" in by_bash(scripts, ["run", "--method", "=", "gcfl", "--o"])
    else:
        typed = f"{ZSH}\nwords=(fedpub run --method=g); CURRENT=3; _fedpub"
        assert set(said(scripts, shell("zsh"), "-f", "-c", typed).split()) == set(METHODS)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_is_static_text_that_its_shell_can_read(name, scripts):
    text = (scripts / name).read_text()
    assert not re.search(r"`|\((fedpub|python)", text)
    said(scripts, shell(name), "-n", name, path="/usr/bin:/bin")


def test_every_verb_and_every_flag_is_known(found):
    """Against the functions themselves: their parameters, and the fields of parameters that hold several flags."""
    known = {verb.name: verb for verb in found}
    assert list(known) == list(VERBS)
    for name, verb in known.items():
        flags = {flag for one in verb.flags for flag in one.names}
        assert "--help" in flags
        function = action(name)
        hints = get_type_hints(function, include_extras=True)
        for parameter, one in inspect.signature(function).parameters.items():
            if is_dataclass(one.default):
                hidden = [mark for mark in getattr(hints[parameter], "__metadata__", ()) if isinstance(mark, Settings)]
                wanted = [own.name for own in fields(one.default) if not hidden or own.name not in hidden[0].without]
            else:
                wanted = [] if "Positional" in one.annotation or one.annotation == "Typed" else [parameter.rstrip("_")]
            assert {f"--{word.replace('_', '-')}" for word in wanted} <= flags, name


def test_the_kinds_of_flags_are_told_apart(found):
    run = {flag.names[-1]: flag for verb in found if verb.name == "run" for flag in verb.flags}
    assert (run["--quiet"].names, run["--quiet"].takes) == (("--quiet",), 0)
    assert (run["--no-masks"].names, run["--no-masks"].takes) == (("--masks", "--no-masks"), 0)
    assert (run["--rounds"].takes, run["--rounds"].values, run["--rounds"].files) == (1, (), False)
    assert (run["--ratios"].takes, run["--track"].takes) == (2, 2)
    assert run["--out"].files
    assert run["--measure"].values == ("function", "parameter", "gradient", "label")
    assert run["--relation"].values == ("neighbourhood", "similarity")
    assert run["--hidden"].about == "Width of the hidden layers"
    compare = {flag.names[-1]: flag for verb in found if verb.name == "compare" for flag in verb.flags}
    assert (compare["--json"].takes, compare["--json"].files) == (2, True)


def test_the_verb_prints_the_script(capsys, scripts, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # a wide terminal makes no difference
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == (scripts / "bash").read_text()
    assert os.environ["COLUMNS"] == "300"


def test_another_shell_is_refused(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["completion", "powershell"])
    assert caught.value.code == 2
    assert "bash" in capsys.readouterr().err


def test_a_real_bash_completes(scripts, tmp_path):
    """A whole line at a prompt, with TAB: what the functions above are for."""
    pty = pytest.importorskip("pty")
    shell("bash")
    code = f'source {scripts / "bash"}\nfedpub() {{ echo "got:$*"; }}\n'
    (tmp_path / "rc").write_text(code)
    leader, follower = pty.openpty()
    words = ["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"]
    with subprocess.Popen(words, stdin=follower, stdout=follower, stderr=follower, start_new_session=True) as one:
        os.close(follower)
        os.write(leader, b"fedpub data sta\t--scen\tlou\t\nexit\n")
        got = read_terminal(leader)
        one.wait(30)
    os.close(leader)
    assert b"got:data stats --scenario louvain" in got, got


def test_what_is_kept_of_the_verbs_is_what_their_parsers_have(found):
    assert known_verbs() == found, "run: python docs/generate.py"
    assert known_recipes() == {name: recipe.title for name, recipe in RECIPES.items()}


def test_no_verb_has_a_flag_that_is_an_option_of_a_method():
    """Else it would be taken for that option, given to another method. One setting is FED-PUB-plus' own as well."""
    options = {name for method in METHODS for name in options_of(method)} - {"min_group"}
    assert [verb for verb in VERBS if takes_method(action(verb))] == ["run", "deploy local", "coordinator init"]
    for verb in VERBS:
        if takes_method(action(verb)):
            assert not options & set(inspect.signature(action(verb)).parameters)
    assert not options & {one.name for one in fields(Experiment)}
