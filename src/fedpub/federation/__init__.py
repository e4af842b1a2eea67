"""Federations of sites that exchange messages: the coordinator's side and a site's, for any transport."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
