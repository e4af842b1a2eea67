"""Type checks for settings from any source: a flag, a file, a program."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, get_type_hints

from fedpub.errors import FedpubError


def check_types(settings: Any, prefix: str) -> None:
    """Raise an error unless every field of a dataclass has a value of its declared type."""
    from typeguard import TypeCheckError, check_type

    hints = get_type_hints(type(settings))
    for one in fields(settings):
        value = getattr(settings, one.name)
        try:
            check_type(value, hints[one.name])
        except TypeCheckError:
            kind = str(one.type).removeprefix("typing.")
            raise FedpubError(f"{prefix}{one.name} cannot be {value!r}: it must be of type {kind}") from None
        if isinstance(value, float) and not math.isfinite(value):
            said = f"{prefix}{one.name} {value}" if prefix else f"`{one.name}={value}`"
            raise FedpubError(f"{said} is not possible; give a finite number")
        if prefix and isinstance(value, int | float) and value < 0:  # no method takes negative numbers
            raise FedpubError(f"{prefix}{one.name} cannot be {value}: give 0 or more")
