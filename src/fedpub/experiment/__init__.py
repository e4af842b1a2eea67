"""What to run, and what that means: the settings, what they leave open, and the data they ask for."""

from fedpub.experiment.plan import Plan
from fedpub.experiment.spec import Experiment

__all__ = ["Experiment", "Plan"]
