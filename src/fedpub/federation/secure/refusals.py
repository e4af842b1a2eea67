"""Why an attempt ends: one member is at fault, or too few are there."""

from __future__ import annotations

from fedpub.errors import FedpubError


class CulpritError(FedpubError):
    """What a member has sent is wrong; `culprit` is its number."""

    def __init__(self, culprit: int, text: str) -> None:
        super().__init__(text)
        self.culprit = culprit


class NotEnoughError(FedpubError):
    """Too few members are left, or too few have answered; another attempt may succeed."""
