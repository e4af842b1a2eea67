"""How CSV files are written: their delimiter, their encoding, and the line of each row."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedpub.errors import FedpubError

DELIMITERS = (",", ";", "\t", "|")
NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}
LOOKED_AT = 1 << 16  # bytes, to detect a file's encoding and delimiter

csv.field_size_limit(2**31 - 1)  # the csv module only finds the line of an error; a long text must not stop it


@dataclass(frozen=True)
class Dialect:
    """How CSV files are written; None is detected from the file."""

    delimiter: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if self.delimiter is not None and len(NAMED_DELIMITERS.get(self.delimiter, self.delimiter)) != 1:
            raise FedpubError(f"`delimiter={self.delimiter}` is not possible; give one character, or tab")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError as error:
            raise FedpubError(f"`encoding={self.encoding}` is unknown; give one such as utf-8 or latin-1") from error

    def of(self, path: Path) -> tuple[str, str]:
        """The delimiter and the encoding of a file."""
        with path.open("rb") as file:
            start = file.read(LOOKED_AT)
        encoding = self.encoding or _encoding_of(start)
        if self.delimiter is not None:
            return NAMED_DELIMITERS.get(self.delimiter, self.delimiter), encoding
        lines = re.sub(r'"[^"]*"', "", start.decode(encoding, errors="replace")).splitlines()
        header = next((line for line in lines if line.strip()), "")
        return max(DELIMITERS, key=header.count), encoding  # on a tie, the first


FOUND = Dialect()


def csv_lines(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Every row that is not blank, with the line on which it starts; quoted text may span lines."""
    delimiter, encoding = dialect.of(path)
    with path.open(newline="", encoding=encoding, errors="replace") as file:
        reader, line = csv.reader(file, delimiter=delimiter), 1
        for fields in reader:
            if fields:
                yield line, fields
            line = reader.line_num + 1


def first_line(path: Path, dialect: Dialect) -> list[str]:
    return next((fields for _, fields in csv_lines(path, dialect)), [])


def _encoding_of(start: bytes) -> str:
    """The encoding of a file that starts like this: by its BOM, by the zeros of UTF-16 in plain text, else UTF-8."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    even, odd = start[::2].count(0), start[1::2].count(0)
    if max(even, odd) > len(start) // 8:
        return "utf-16-be" if even > odd else "utf-16-le"
    return "utf-8-sig"
