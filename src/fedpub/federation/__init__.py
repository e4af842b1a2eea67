"""A federation by messages: the coordinator's side and a site's, whoever carries what they write."""

from fedpub.core.lazy import submodules

__getattr__ = submodules(__name__)
