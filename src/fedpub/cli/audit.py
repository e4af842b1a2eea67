"""The verbs that show what has left a machine, and whether its audit log is intact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedpub.cli.show import as_json, wide_console
from fedpub.core.printable import printable
from fedpub.errors import FedpubError

if TYPE_CHECKING:
    from fedpub.federation.audit import Found
    from fedpub.federation.journal_check import Checked, Compared
    from fedpub.federation.log_summary import LogSummary

DEFECT = 1  # the exit status if a log is not as it was written


def verify(
    folder: tyro.conf.Positional[Path], against: Path | None = None, keys: tuple[Path, ...] = (), json: bool = False
) -> int:
    """Check an audit log: a line that was changed, removed or moved is named, and so is a wrong countersignature.

    With the log of the other end it also shows whether lines were cut off, or a log was written again; with the sites'
    keys, whether a coordinator has signed answers itself. The exit status is 0 if the log is intact, and 1 if it is
    not.

    Example: fedpub audit verify coordinator --against hospital-a

    Args:
        folder: Folder of a coordinator or of a site, or its audit.jsonl.
        against: Log or folder of the other end, with which it should agree.
        keys: Keys of all sites: .pub files from the sites themselves, or lists like admitted.txt, old keys too.
    """
    from fedpub.federation.journal_check import checked, compared, log_of

    try:
        from fedpub.flower.countersign import verify as is_signed
    except ImportError as error:
        raise FedpubError("this needs cryptography, which is not installed: pip install 'fedpub[deploy]'") from error

    from fedpub.flower.keys import read_given

    given = read_given(keys) if keys else None
    logs = [checked(log_of(place), is_signed, given) for place in (folder, against) if place is not None]
    if keys and not any(log.end == "coordinator" or log.defect for log in logs):
        raise FedpubError(f"`keys={keys[0]}` is for the log of a coordinator, and {logs[0].path} is none")
    defect = next((f"{log.path}: {log.defect}" for log in logs if log.defect), None)
    both: Compared | None = None
    if against is not None and defect is None:
        first, second = logs
        if first.end is not None and first.end == second.end:
            raise FedpubError(f"`against={against}` is the log of a {second.end}, too; give that of the other end")
        if first.end == "site" or second.end == "coordinator":  # a log without lines is of neither
            first, second = second, first
        both = compared(first.path, second.path)
        defect = both.defect
    if not as_json({"intact": defect is None, "defect": defect, "logs": logs, "both": both}, json):
        _show_verified(logs, both, defect, bool(keys))
    return 0 if defect is None else DEFECT


def _show_verified(logs: list[Checked], both: Compared | None, defect: str | None, given: bool) -> None:
    from fedpub.flower.keys import fingerprint

    console = Console(highlight=False, soft_wrap=True, markup=False)
    for log in logs:
        if log.defect:
            continue
        console.print(f"{log.path}: {log.lines:,} lines, intact")
        if log.torn:
            console.print("its last line was cut short, and its message has not left; the next start cuts it off")
        if log.answers:
            console.print(f"countersigned: {log.countersigned:,} of {log.answers:,} answers")
        if log.over_flower:
            console.print(f"{log.over_flower:,} answers came by flwr run, where the coordinator can replace any")
        for site, keys in log.keys.items():
            console.print(f"signed by {printable(site)}: {', '.join(map(fingerprint, keys))}")
        if log.keys:
            by = "those given" if given else "by this log itself; --keys compares them with the sites' own"
            console.print(f"these keys are {by}")
    if both and not both.defect:
        late = f"; {both.late:,} answers of the site came too late or were not taken" if both.late else ""
        console.print(f"both logs have the same {both.messages:,} answers and their messages{late}")
        if both.elsewhere:
            console.print(f"{both.elsewhere:,} answers of the site are in runs that the coordinator's log lacks")
    if defect:
        console.print(f"not intact: {defect}")


def audit(
    folder: Path, experiment: Path | None = None, dump: Path | None = None, log: bool = False, json: bool = False
) -> None:
    """The exact data that left this site last, or that would leave it, and a summary of all messages in its log.

    Example: fedpub site audit --folder hospital-a --experiment config.json

    Args:
        folder: Folder of the site.
        experiment: A run's config.json, to show what the site would send first in such a run, without sending it.
        dump: File for the decoded tensors, in the safetensors format.
        log: All lines of the audit log instead, one for each message.
    """
    from fedpub.core.private import owner_only
    from fedpub.core.tensor_files import write_tensors
    from fedpub.core.tree import pack
    from fedpub.federation.audit import sent_by, would_send
    from fedpub.federation.journal import FILE
    from fedpub.federation.log_summary import summarized
    from fedpub.flower.sites import open_site

    if log:
        _show_lines(folder, json)
        return
    with owner_only():
        site = open_site(folder)
    known = summarized(folder / FILE) if experiment is None and (folder / FILE).is_file() else None
    found = would_send(site, experiment) if experiment or not known or sent_by(site) else None
    if dump and found:
        write_tensors(dump, pack(found.message), {})
    names = ("title", "parts", "values", "fields", "size", "masked", "stays")
    what = {name: getattr(found, name) for name in names} if found else {}
    if as_json(what | {"dump": dump, "log": known}, json):
        return
    console = wide_console(200)
    if found:
        _show_found(console, found)
    if dump:
        console.print(f"written to {dump}" if found else f"nothing was sent, so {dump} is not written", soft_wrap=True)
    if known:
        _show_summary(console, known)


def _show_found(console: Console, found: Found) -> None:
    table = Table(title=found.title, title_justify="left", header_style="bold")
    for heading in ("what", "shape", "type", "entries sent", "coding", "bytes", "first values"):
        table.add_column(heading, justify="right" if heading in ("entries sent", "bytes") else "left")
    for part in found.parts:
        words = (part.name, str(list(part.shape)), part.dtype, f"{part.entries:,}", part.coding, f"{part.bytes:,}")
        table.add_row(*words, found.values.get(part.name, ""))
    console.print(table)
    console.print(f"{found.size:,} bytes in all; numbers about the round: {found.fields}", soft_wrap=True)
    if found.masked:
        said = "of them the coordinator can read only the sum over a group of sites"
        console.print(f"masked, in another message: {found.masked:,} bytes; {said}", soft_wrap=True)
    console.print(f"stays here: {', '.join(found.stays)}", soft_wrap=True)


def _show_summary(console: Console, known: LogSummary) -> None:
    table = Table(title="all messages, by the audit log", title_justify="left", header_style="bold")
    for heading in ("run", "kind", "in", "out", "bytes in", "bytes out", "first", "last"):
        table.add_column(heading, justify="right" if heading in ("in", "out", "bytes in", "bytes out") else "left")
    for one in known.messages:
        counts = (one.received, one.sent, one.bytes_in, one.bytes_out)
        table.add_row(one.run, one.kind, *(f"{count:,}" if count else "" for count in counts), one.first, one.last)
    console.print(table)
    for refused in known.refusals:
        said = f"refused {refused.times:,} times, last at {refused.last}: {refused.reason}"
        console.print(Text(said), soft_wrap=True)
    intact = f"not intact: {known.defect}" if known.defect else f"intact, {known.lines:,} lines"
    console.print(Text(f"the chain of the log is {intact}"), soft_wrap=True)


def _show_lines(folder: Path, json: bool) -> None:
    from fedpub.federation.journal import lines
    from fedpub.federation.journal_check import log_of

    found = lines(log_of(folder))
    if as_json([line.entry for line in found] if json else None, json):
        return
    for line in found:
        entry = line.entry
        names = ", ".join(f"{name} {shape}" for name, _, shape in entry["tensors"])
        if "unlisted" in entry:
            names = f"{entry['unlisted']['tensors']:,} tensors"
        about = f"round {entry['round']}" if entry["round"] is not None else ""
        words = [f"{line.number:>6}", entry["time"], f"{entry['direction']:<3}", entry["kind"], about]
        words += [f"{entry['bytes']:,} bytes", entry["digest"][:12], names, entry.get("reason", "")]
        print(printable("  ".join(word for word in words if word), 10_000))
