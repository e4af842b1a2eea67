"""The pages that are generated from the code: python docs/generate.py writes them, --check lists outdated ones.

docs/reference/ is written whole. In the other pages only the text between two comments is replaced:

    <!-- generated: NAME -->  ...  <!-- end -->
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import io
import itertools
import os
import re
import runpy
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
WIDTH = 100  # of help texts
NOTE = "<!-- Made by docs/generate.py: edit the code's own texts, not this page. -->\n"


def pages() -> dict[Path, str]:
    """Every page that has generated text, as it should be."""
    from fedpub.cli.typed import typed_json

    found = {DOCS / "reference" / "cli.md": cli(), DOCS / "reference" / "python.md": python()}
    found[ROOT / "src" / "fedpub" / "cli" / "typed.json"] = typed_json() + "\n"
    found[DOCS / "architecture.svg"] = house()["drawing"]()
    made: dict[str, str] = {}
    for path in sorted(DOCS.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        names = re.findall(r"<!-- generated: (.+?) -->", text)
        if not names:
            continue
        for name in names:
            if name not in made:
                made[name] = copied(name) if name not in BLOCKS else BLOCKS[name]()
            start, end = f"<!-- generated: {name} -->", "<!-- end -->"
            before, _, rest = text.partition(start)
            if end not in rest:
                raise SystemExit(f"{path}: what is generated as {name!r} has no {end}")
            text = f"{before}{start}\n{made[name]}\n{end}{rest.partition(end)[2]}"
        found[path] = text
    return found


def main() -> int:
    wanted = pages()
    old = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        for path in old:
            print(f"{path.relative_to(ROOT)} is out of date; run: python docs/generate.py", file=sys.stderr)
        return 1 if old else 0
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], encoding="utf-8")
        print(path.relative_to(ROOT))
    return 0


def table(headings: Iterable[str], rows: Iterable[Iterable[Any]], right: Iterable[int] = ()) -> str:
    """A Markdown table; the columns in `right` hold numbers."""
    heads, right = list(headings), set(right)
    rule = ["---:" if at in right else "---" for at in range(len(heads))]
    lines = [heads, rule, *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def copied(name: str) -> str:
    """A file of the repository as a block of code."""
    kind = {".py": "python", ".sh": "sh"}[Path(name).suffix]
    return f"```{kind}\n{(ROOT / name).read_text(encoding='utf-8').strip()}\n```"


# The command line


def cli() -> str:
    """Every verb's help as it is printed."""
    from fedpub.cli import VERBS

    lines = ["# Command line", "", NOTE, "This is what `fedpub VERB --help` prints.", ""]
    rows = ((f"[`{verb}`](#fedpub-{verb.replace(' ', '-')})", line) for verb, (_, line) in VERBS.items())
    lines += [table(("verb", "what it does"), rows)]
    for verb in VERBS:
        lines += ["", f"## fedpub {verb}", "", "```text", printed([*verb.split(), "--help"]), "```"]
    lines += ["", "## Flags of each method", ""]
    lines += ["`run`, `coordinator init` and `deploy local` take the flags of the method that `--method` names;"]
    lines += ["`compare` takes them as `--set METHOD.NAME=VALUE`.", ""]
    lines += [table(("method", "flag", "default", "what it does"), _options(), ())]
    return "\n".join(lines) + "\n"


def printed(words: list[str]) -> str:
    from fedpub.cli import main as fedpub

    out, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            fedpub(words)
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
    return "\n".join(line.rstrip() for line in out.getvalue().strip().splitlines())


def _options() -> Iterable[tuple[str, str, str, str]]:
    from fedpub.algorithms import METHODS

    for method, kind in METHODS.items():
        said = _attributes(kind)
        for one in fields(kind):  # type: ignore[arg-type]
            flag = f"`--{one.name.replace('_', '-')}`"
            yield method, flag, f"`{one.default}`", " ".join(said.get(one.name, "").split())


# The Python reference

API: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "Experiments": (
        "What `fedpub.run` and `fedpub.compare` are made of.",
        {
            "fedpub.runs.simulated": ("run", "Result"),
            "fedpub.experiment.plan": ("Plan",),
            "fedpub.experiment.prepare": ("prepare", "Prepared"),
            "fedpub.runs.comparison": ("plan", "compare"),
        },
    ),
    "Graphs": (
        "From files, from other libraries, and dividing them.",
        {
            "fedpub.data.datasets": ("load", "names"),
            "fedpub.data.tables": ("from_tables", "from_networkx", "from_pyg", "Imported"),
            "fedpub.data.clients.partition": ("partition", "Partition"),
            "fedpub.data.clients.statistics": ("partition_statistics", "PartitionStatistics"),
        },
    ),
    "Models and predictions": (
        "A run's personal models, as files and in use.",
        {
            "fedpub.store.run_models": ("open_model",),
            "fedpub.store.model_card": ("ModelCard",),
            "fedpub.runs.prediction": ("predict",),
        },
    ),
    "Writing a method": (
        "What a method is made of; see [Write your own method](../write-your-own-method.md).",
        {
            "fedpub.algorithms.protocol": ("Algorithm", "Context", "Setup"),
            "fedpub.algorithms.training": ("train", "start", "adopt", "optimiser_of", "weighted_mean"),
            "fedpub.core.tree": (
                "tree_map",
                "stacked",
                "broadcast",
                "select",
                "update",
                "flatten",
                "mix",
                "tree",
                "tensor",
            ),
        },
    ),
    "Sites and a coordinator": (
        "The deployed engine without machines: messages are handed over in one process.",
        {
            "fedpub.federation.in_process": ("InProcessSites",),
            "fedpub.federation.coordinator": ("Coordinator", "Terms"),
            "fedpub.federation.deployed": ("play",),
        },
    ),
}


def python() -> str:
    """The public names with their signatures and docstrings."""
    import fedpub

    lines = ["# Python", "", NOTE]
    api = importlib.import_module("fedpub.api.calls")
    public = {name: getattr(api, name, None) or getattr(fedpub, name) for name in fedpub.__all__ if name[0] != "_"}
    lines += ["## fedpub", "", "What a program or a notebook needs most: `import fedpub`.", ""]
    for name in sorted(public, key=lambda name: (inspect.isclass(public[name]), name)):
        lines += _entry(f"fedpub.{name}", public[name])
    for title, (about, modules) in API.items():
        lines += [f"## {title}", "", about, ""]
        for module, names in modules.items():
            held = importlib.import_module(module)
            for name in names:
                lines += _entry(f"{module}.{name}", getattr(held, name))
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, held: Any) -> list[str]:
    lines = [f"### `{name}`", ""]
    if inspect.isclass(held):
        lines += _class_text(held)
    elif callable(held):
        lines += ["```python", signature(held, name.rpartition(".")[2]), "```", "", *_doc(held)]
    else:
        lines += [f"`{held!r}`", ""]
    return lines


def _class_text(kind: type) -> list[str]:
    lines = _doc(kind)
    is_data = hasattr(kind, "__dataclass_fields__")
    if is_data:
        said = _attributes(kind)
        given = fields(kind)  # type: ignore[arg-type]
        rows = [(f"`{one.name}`", f"`{one.type}`", " ".join(said.get(one.name, "").split())) for one in given]
        lines += [table(("field", "type", "what it is"), rows), ""]
    for name, member in vars(kind).items():
        made = name == "__init__" and not is_data and not getattr(kind, "_is_protocol", False)
        if name.startswith("_") and not made and name != "__call__":
            continue
        member = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        text = " ".join((inspect.getdoc(member) or "").split()) if getattr(member, "__doc__", None) else ""
        if isinstance(member, property | functools.cached_property):
            shown = f".{name}"
        elif inspect.isfunction(member):
            shown = signature(member, kind.__name__ if made else name, method=True, width=10_000)
            shown = shown.removesuffix(" -> None") if made else shown
        else:
            continue
        lines += [f"- `{shown}`" + (f": {text}" if text else "")]
    return [*lines, ""] if lines and lines[-1] else lines


def _doc(held: Any) -> list[str]:
    text = inspect.getdoc(held) or ""
    if inspect.isclass(held) and text.startswith(f"{held.__name__}("):  # what a dataclass says where nobody said more
        text = ""
    return [text, ""] if text else []


def signature(function: Callable[..., Any], name: str, method: bool = False, width: int = WIDTH) -> str:
    """As in the code, with one parameter per line if it is long."""
    found = inspect.signature(function)
    given = list(found.parameters.values())
    given = given[1:] if method and given and given[0].name == "self" else given
    parts, keyword_only = [], False
    for one in given:
        if one.kind is one.KEYWORD_ONLY and not keyword_only and not any(p.kind is p.VAR_POSITIONAL for p in given):
            parts.append("*")
            keyword_only = True
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = "" if one.annotation is one.empty else f": {_type(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_value(one.default)}" if kind else f"={_value(one.default)}"
        parts.append(f"{stars}{one.name}{kind}{default}")
    back = "" if found.return_annotation is found.empty else f" -> {_type(found.return_annotation)}"
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) <= width:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){back}"


def _type(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _value(value: Any) -> str:
    """A default, without what differs from one machine to another."""
    if hasattr(value, "__dataclass_fields__") and value == type(value)():
        return f"{type(value).__name__}()"
    if isinstance(value, Mapping):
        return repr(dict(value))
    return "..." if " at 0x" in repr(value) else repr(value)


def _attributes(kind: type) -> dict[str, str]:
    """The documentation of a class's fields, inherited ones included: the text below each, or the comment after it."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if one.__module__.split(".")[0] != "fedpub":
            continue
        source = textwrap.dedent(inspect.getsource(one))
        body, written = ast.parse(source).body[0].body, source.splitlines()  # type: ignore[attr-defined]
        for line, text in itertools.zip_longest(body, body[1:]):
            if not isinstance(line, ast.AnnAssign):
                continue
            name, comment = line.target.id, written[line.end_lineno - 1].partition("  # ")[2]  # type: ignore[union-attr, operator]
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[name] = str(text.value.value)
            elif comment and "noqa" not in comment and "type:" not in comment:
                found[name] = comment
    return found


# What leaves a client

# The methods say what they send; what each part means is written here. A part without a sentence is an error.
MEANING = {
    "weights": "the client's weights after local training",
    "size": "its number of training examples",
    "base": "the weights below the classifier",
    "active": "which of these entries are sent",
    "embedding": "the mean output of its model on the random proxy graph",
    "functions": "the change of its model's outputs on the random proxy graph, of a model that it has trained alone",
    "scores": "seven numbers: its models' validation values, Local's loss, and which model it uses",
    "personal": "its masked weights, from which the server computes the embedding",
    "labels": "how many training nodes of each class it has",
    "features": "the features of its nodes, in the clear",
    "hashes": "a hash of every node's neighbourhood",
    "head": "the weights of its generator's feature head",
    "latent": "the inputs of that head, for sampled nodes",
    "gradient": "the gradient of another client's head, scored against neighbours here",
    "nodes": "related nodes of other clients",
    "wanted": "which of its nodes other clients need",
    "masked": "the vector that it adds to a sum: random numbers to all who do not have the masks",
    "deposit": "commitments, and shares of its secrets of this sum, sealed for the other sites",
    "dealt": "what the other sites have deposited for it",
    "tags": "confirmations of who takes part, from each site to each other one",
    "revealed": "its self-mask, and its shares of the other sites' secrets",
}
# What a client receives in a round and is not an average of weights.
RECEIVED = {
    "phase": "whether it trains alone, with all clients or in its community",
    "means": "the means of the clients' `scores`",
    "dealt": MEANING["dealt"],
    "tags": MEANING["tags"],
}
SUMS = ("shares", "masked", "confirm", "reveal")  # the exchanges of a secure sum
SECURE = " --secure"
# As the page calls it: the method, its options, and how the graph is divided.
SENDERS: dict[str, tuple[str, dict[str, Any], str, int | None]] = {
    "local": ("local", {}, "natural", None),
    "fedavg": ("fedavg", {}, "natural", None),
    "fedprox": ("fedprox", {}, "natural", None),
    "fedper": ("fedper", {}, "natural", None),
    "gcfl": ("gcfl", {}, "natural", None),
    "fedpub": ("fedpub", {}, "natural", None),
    "fedpub --no-masks": ("fedpub", {"masks": False}, "natural", None),
    "fedpub --no-similarity": ("fedpub", {"similarity": False}, "natural", None),
    "fedpub --embedding server": ("fedpub", {"embedding": "server"}, "natural", None),
    "fedpub --measure label": ("fedpub", {"measure": "label"}, "natural", None),
    "fedpub --official": ("fedpub", {"official": True}, "natural", None),
    "fedgnn": ("fedgnn", {}, "natural", None),
    "fedgnn --scenario overlapping": ("fedgnn", {}, "overlapping", 20),
    # Every round of the set-up sends the same: one is watched, and counted as often as there are by default.
    "fedsage": ("fedsage", {"generator_epochs": 1, "generator_rounds": 1}, "natural", None),
    "fedpub-plus, first five rounds": ("fedpub-plus", {}, "natural", None),
    "fedpub-plus, later rounds": ("fedpub-plus", {"given": ",".join("01230" * 4)}, "natural", None),
    # With secure aggregation; `watched` knows it by the end of the name.
    "fedavg --secure": ("fedavg", {}, "natural", None),
    "fedpub --communities explicit --secure": ("fedpub", {"communities": "explicit"}, "natural", None),
    "fedpub-plus, first five rounds --secure": ("fedpub-plus", {}, "natural", None),
    "fedpub-plus, later rounds --secure": ("fedpub-plus", {"given": ",".join("01230" * 4)}, "natural", None),
}
NARROW = 8  # how many times narrower than usual the models are


def senders() -> dict[str, tuple[str, dict[str, Any], str, int | None]]:
    """In the order of the methods: those above, and every other one with its defaults."""
    from fedpub.algorithms import METHODS

    found: dict[str, tuple[str, dict[str, Any], str, int | None]] = {}
    for method in METHODS:
        listed = {name: one for name, one in SENDERS.items() if one[0] == method}
        found |= listed or ({} if method == "oracle" else {method: (method, {}, "natural", None)})
    return found


@dataclass
class Traffic:
    """What one client sent and received, by moment and part: times and bytes."""

    up: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    down: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    said: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # the fields of its answers, by kind
    kept: tuple[str, ...] = ()
    declared: frozenset[str] = frozenset()
    secure: bool = False

    def total(self, way: str, moment: str) -> int:
        return sum(sum(sizes) for (when, _), sizes in getattr(self, way).items() if when == moment)


def watched(method: str, options: dict[str, Any], scenario: str, clients: int | None, secure: bool) -> Traffic:
    """The first client of a run of one round on the built-in graph, through encoded messages."""
    from fedpub.core.tree import tree
    from fedpub.experiment import Experiment
    from fedpub.federation.coordinator import Coordinator
    from fedpub.federation.deployed import play
    from fedpub.federation.in_process import InProcessSites
    from fedpub.federation.wire import decode, describe

    usual = Experiment("communities", scenario, clients, method, options, rounds=1, secure=secure).resolve()
    experiment = replace(usual.experiment, hidden=usual.hidden // NARROW)
    traffic, run = Traffic(secure=secure), "0" * 16

    def count(way: dict[tuple[str, str], list[int]], kind: str, envelope: bytes) -> None:
        sizes: dict[str, int] = {}
        for part in describe(envelope)[1:]:  # the first is the header
            name = part.name.partition("/")[0]
            sizes[name] = sizes.get(name, 0) + part.bytes
        for name, size in sizes.items():
            way.setdefault((kind, name), []).append(size)

    with tempfile.TemporaryDirectory() as folder:
        sites = InProcessSites(Path(folder) / "sites", experiment)

        def exchange(messages: Mapping[int, bytes], deadline: float) -> dict[int, bytes]:
            answers = sites(messages, deadline)
            if 0 in messages:
                asked = decode(messages[0])
                kind = asked.kind
                if kind in SUMS:  # there is a sum before the first round, and one in every round
                    kind = "round" if asked.fields["round"] else "setup"
                count(traffic.down, kind, messages[0])
                count(traffic.up, kind, answers[0])
                traffic.said["sum" if asked.kind in SUMS else kind] = decode(answers[0]).fields
            return answers

        coordinator = Coordinator(experiment, run, sites.names, exchange, Path(folder) / "sites")
        play(coordinator, Path(folder) / "run")
        held = sites.site(0).part(run)
        state, answer = held.load("round-1")
        sent = {leaf for content in decode(answer).message.values() if isinstance(content, dict) for leaf in content}
        kept = [name for name, part in state.items() if name != "weights" and not (isinstance(part, dict) and not part)]
        kept += [f"weights/{leaf}" for leaf in tree(state["weights"]) if leaf not in sent] if sent else ["weights"]
        traffic.kept, traffic.declared = tuple(kept), held.algorithm.uploads
    if method == "fedsage":
        _repeat(traffic, type(held.algorithm)().generator_rounds)
    for way, moments in (("sent", traffic.up), ("received", traffic.down)):
        for _, name in moments:
            if name not in MEANING | RECEIVED:
                raise SystemExit(f"{method} {way} {name!r}: say in docs/generate.py what that is")
    hidden = {"deposit", "masked", "tags", "revealed"} if secure else set()
    if undeclared := {name for _, name in traffic.up} - traffic.declared - hidden:
        raise SystemExit(f"{method} sent {undeclared}, which it does not declare")
    return traffic


def _repeat(traffic: Traffic, times: int) -> None:
    """Count what was exchanged once before the rounds as often as it happens by default."""
    for way in (traffic.up, traffic.down):
        for (moment, name), sizes in way.items():
            assert moment != "setup" or len(sizes) == 1, f"{name} was sent {len(sizes)} times"
            if moment == "setup":
                way[moment, name] = sizes * times


_seen: dict[str, Traffic] = {}


def traffic_of(name: str) -> Traffic:
    if name not in _seen:
        _seen[name] = watched(*senders()[name], secure=name.endswith(SECURE))
    return _seen[name]


def overview() -> str:
    rows = []
    for name in senders():
        one = traffic_of(name)
        leaves = {part for _, part in one.up} & one.declared if one.secure else one.declared
        declared = ", ".join(f"`{part}`" for part in sorted(leaves)) or "nothing"
        declared = f"in the clear: {declared}" if one.secure else declared
        setup, down = one.total("up", "setup"), one.total("down", "setup")
        rows.append(
            (
                f"`{name}`",
                declared,
                f"{one.total('up', 'round'):,}",
                f"{one.total('down', 'round'):,}",
                f"{setup:,}" if setup or down else "",
                f"{down:,}" if setup or down else "",
            )
        )
    heads = ("method", "may leave (`uploads`)", "up, per round", "down, per round", "up before", "down before")
    return table(heads, rows, range(2, 6))


def parts() -> str:
    rows = []
    for name in senders():
        one = traffic_of(name)
        for moment in ("setup", "round"):
            for (when, part), sizes in sorted(one.up.items()):
                if when == moment:
                    times = "every round" if moment == "round" else f"before, {len(sizes)} ×"
                    rows.append((f"`{name}`", times, f"`{part}`", MEANING[part], f"{sum(sizes):,}"))
    return table(("method", "when", "part", "what it is", "bytes in all"), rows, (4,))


def received() -> str:
    rows = []
    for name in senders():
        one = traffic_of(name)
        for moment in ("setup", "round"):
            for (when, part), sizes in sorted(one.down.items()):
                if when == moment:
                    whose = RECEIVED.get(part, "its average") if moment == "round" else MEANING[part]
                    times = "every round" if moment == "round" else f"before, {len(sizes)} ×"
                    rows.append((f"`{name}`", times, f"`{part}`", whose, f"{sum(sizes):,}"))
    return table(("method", "when", "part", "what it is", "bytes in all"), rows, (4,))


def kept() -> str:
    adam = ("first", "second", "step")
    rows = []
    for name in senders():
        if traffic_of(name).secure:
            continue  # as without it
        stays = traffic_of(name).kept
        own = ["all weights"] if "weights" in stays else []
        own += [f"`{part.partition('/')[2]}`" for part in stays if part.startswith("weights/")]
        own += [f"`{part}`" for part in stays if part not in ("weights", *adam) and not part.startswith("weights/")]
        own += ["Adam's state"] if set(adam) <= set(stays) else []
        rows.append((f"`{name}`", ", ".join(own)))
    return table(("method", "client state that is never sent"), rows)


def said() -> str:
    """The plain numbers and names next to tensors, for every kind of answer."""
    found: dict[tuple[str, bool], set[str]] = {}
    for name in senders():
        one = traffic_of(name)
        for kind, given in one.said.items():
            names = {f"{key}: {', '.join(value)}" if isinstance(value, dict) else key for key, value in given.items()}
            found.setdefault((kind, one.secure and kind not in ("hello", "finish")), set()).update(names)
    when = {
        "hello": "before the run",
        "begin": "when it begins",
        "setup": "before the rounds, with every exchange",
        "ready": "after these exchanges",
        "round": "every round",
        "finish": "at the end",
        "peers": "when it has seen the keys of all sites",
        "sum": "in the four exchanges of a sum",
    }
    rows = (
        (f"with `--secure`, {when[kind]}" if secure else when[kind], ", ".join(sorted(names)) or "nothing")
        for (kind, secure), names in sorted(found.items(), key=lambda one: one[0][1])
    )
    return table(("when", "fields"), rows)


def scenarios() -> str:
    """What each scenario does, in the words of its function."""
    from fedpub.data.clients.partition import SCENARIOS

    rows = ((f"`{name}`", inspect.getdoc(made)) for name, made in SCENARIOS.items())
    return table(("scenario", "who gets what"), rows)


def house() -> dict[str, Any]:
    """The names of docs/house.py."""
    return runpy.run_path(str(DOCS / "house.py"))


def rooms() -> str:
    made: str = house()["table"]()
    return made


BLOCKS: dict[str, Callable[[], str]] = {
    "rooms": rooms,
    "overview": overview,
    "parts": parts,
    "received": received,
    "kept": kept,
    "said": said,
    "scenarios": scenarios,
}

if __name__ == "__main__":
    sys.exit(main())
