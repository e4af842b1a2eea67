"""The drawing of the house: python docs/generate.py writes it as docs/architecture.svg.

It has no background and keeps all text inside filled shapes, so that it is readable on light and on dark pages.
"""

from __future__ import annotations

from html import escape

# From top to bottom, as in the contract of import-linter: a floor, and its rooms with what each is for.
FLOORS: dict[str, dict[str, str]] = {
    "use": {
        "cli": "the verbs of the command line: parses, calls, prints",
        "api": "`import fedpub`: thin functions for notebooks and scripts",
        "paper": "one recipe per table and figure; runs kept under the hash of their experiment",
        "bench": "benchmarks, and the roofline they are held against",
        "attacks": "what a curious coordinator learns, beside guesses",
        "report": "from run directories to tables, figures, one HTML page and a live page",
    },
    "federate": {
        "flower": "the transport: keys, TLS, the gate, mailboxes and nodes of Flower's protocol, processes",
        "federation": "coordinator and site: messages, validation, secure sums, joining, audit; any transport",
    },
    "run": {
        "runs": "the loop over rounds; simulation, comparison, sweep, prediction, tracking",
        "store": "the run directory, its rows and checkpoints; model files",
        "experiment": "Experiment (what is asked for) and Plan (everything decided, built once)",
    },
    "learn": {
        "engine": "the simulator: all clients in one process, stacked; memory; defences",
        "algorithms": "one file per method, and the protocol and training that they share",
        "tasks": "classes, labels or numbers of nodes, and links: division, loss, metrics",
        "models": "GCN, GraphSAGE, twin, hops, your modules; wrappers; proxy graphs",
    },
    "build on": {
        "data": "graphs and datasets; your own tables; clients, subgraphs, stacks",
        "core": "trees, messages, optimiser, random streams, sparse products, files: no graphs",
        "errors": "FedpubError: one sentence with value, place and way out",
    },
}
COLOURS = {  # fill and text of a floor
    "use": ("#cfe3f7", "#0d2b45"),
    "federate": ("#d5ecd9", "#123a1c"),
    "run": ("#fbe6c2", "#43300a"),
    "learn": ("#f6d3cb", "#481a10"),
    "build on": ("#dcdce4", "#24242c"),
}
WIDTH, LEFT, RIGHT, ROW, GAP, ROOF = 900, 128, 60, 34, 12, 84


def rooms() -> dict[str, str]:
    """Every room with what it is for, from top to bottom."""
    return {room: said for floor in FLOORS.values() for room, said in floor.items()}


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {more}>{escape(text)}</text>'


def drawing() -> str:
    """The SVG: a roof, floors with their rooms, and an arrow in the direction of imports."""
    inner, top = WIDTH - LEFT - RIGHT, ROOF + 8
    shapes: list[str] = []
    y = top
    for floor, held in FLOORS.items():
        fill, ink = COLOURS[floor]
        height = len(held) * ROW + 8
        shapes.append(f'<rect x="16" y="{y}" width="{WIDTH - RIGHT - 16}" height="{height}" rx="4" fill="{fill}"/>')
        shapes.append(_text(28, y + height / 2 + 5, floor, f'fill="{ink}" font-size="15" font-style="italic"'))
        for at, (room, said) in enumerate(held.items()):
            place = y + 4 + at * ROW
            shapes.append(
                f'<rect x="{LEFT}" y="{place + 2}" width="{inner - 8}" height="{ROW - 4}" rx="3" fill="#ffffff"'
                ' fill-opacity="0.75"/>'
            )
            mono = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-weight="600"'
            shapes.append(_text(LEFT + 12, place + 22, room, f'fill="{ink}" font-size="14" {mono}'))
            shapes.append(_text(LEFT + 124, place + 22, said.replace("`", ""), f'fill="{ink}" font-size="13.5"'))
        y += height + GAP
    end, middle = y - GAP, (16 + WIDTH - RIGHT) / 2
    roof = f'<path d="M4 {ROOF} L{middle:g} 6 L{WIDTH - RIGHT + 12} {ROOF} Z" fill="#3d5a80"/>'
    named = _text(
        middle, ROOF - 22, "src/fedpub", 'fill="#ffffff" font-size="20" font-weight="600" text-anchor="middle"'
    )
    x = WIDTH - RIGHT + 30
    arrow = (
        f'<path d="M{x} {top} V{end - 12}" stroke="#7c8594" stroke-width="3" fill="none"/>'
        f'<path d="M{x - 7} {end - 14} H{x + 7} L{x} {end} Z" fill="#7c8594"/>'
        f'<g transform="rotate(90 {x + 10} {(top + end) / 2:g})">'
        f'<rect x="{x - 62}" y="{(top + end) / 2 - 1:g}" width="144" height="22" rx="11" fill="#7c8594"/>'
        + _text(
            x + 10, (top + end) / 2 + 15, "imports point down", 'fill="#ffffff" font-size="13" text-anchor="middle"'
        )
        + "</g>"
    )
    title = "<title>The rooms of src/fedpub from top to bottom; imports point down</title>"
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {end + 8}" role="img"'
        ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
    )
    return "\n".join([start, title, roof, named, *shapes, arrow, "</svg>", ""])


def table() -> str:
    """The rooms as a Markdown table, from bottom to top."""
    lines = [f"| `{room}/` | {said} |" for room, said in reversed(rooms().items())]
    lines[0] = lines[0].replace("`errors/`", "`errors.py`")
    return "\n".join(["| room | what it is for |", "| --- | --- |", *lines])


if __name__ == "__main__":
    print(drawing())
