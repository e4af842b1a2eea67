"""Experiments: the settings, the defaults of those left open, and the data."""

from fedpub.experiment.plan import Plan
from fedpub.experiment.spec import Experiment

__all__ = ["Experiment", "Plan"]
