"""The verbs `report` and `watch`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import tyro

from fedpub.cli.show import as_json
from fedpub.core.files import write_text
from fedpub.core.serving import Server
from fedpub.errors import FedpubError
from fedpub.report import tables
from fedpub.report.live import server
from fedpub.report.load import load
from fedpub.report.page import page
from fedpub.report.payload import payload
from fedpub.report.summary import tables as make_tables


def report(
    dirs: tyro.conf.Positional[tuple[Path, ...]],
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html"),
    markdown: Path | None = None,
    latex: Path | None = None,
    figures: Path | None = None,
    json: bool = False,
) -> None:
    """One page with the results of runs: tables next to the paper's, curves, similarities, clients, costs.

    The page is one file that needs no network. Unfinished runs are shown up to their last round.

    Example: fedpub report runs --out report.html

    Args:
        dirs: Run directories, or folders that hold some.
        out: File for the page.
        markdown: File for the summary table in Markdown.
        latex: File for the summary table in LaTeX.
        figures: Folder for the figures, as PDF and SVG.
        json: Summary table and names of the files as JSON.
    """
    if not dirs:
        raise FedpubError("there is nothing to report on; name a run directory or a folder that holds some")
    runs, complaints = load(dirs)
    for complaint in complaints:
        print(f"fedpub: {complaint}", file=sys.stderr)
    found = make_tables(runs)
    texts = {out: page(payload(runs, complaints))}
    texts |= {markdown: tables.markdown(found)} if markdown else {}
    texts |= {latex: tables.latex(found)} if latex else {}
    for path, text in texts.items():
        write_text(path, text)
    files = list(texts)
    if figures:
        from fedpub.report.figures import save_all

        files += save_all(runs, figures)
    if not as_json({"tables": found, "files": files}, json):
        print(*files, sep="\n")


def watch(dir: tyro.conf.Positional[Path], port: int = 0) -> None:
    """A live report of unfinished runs in the browser, redrawn after every round; Ctrl-C ends it.

    Example: fedpub watch runs

    Args:
        dir: Run directory, or a folder that holds some.
        port: Port on 127.0.0.1; 0 for a free one.
    """
    serve(server([dir], port))


def serve(server: Server) -> None:
    """Show the address and serve until Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also if it was ignored before, as in a script with &
    with server as serving:
        try:
            print(f"http://127.0.0.1:{serving.port}/  (Ctrl-C ends it)", flush=True)
            serving.serve_forever(poll_interval=0.1)
        except KeyboardInterrupt:
            print()
