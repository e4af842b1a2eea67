"""Engines carry a method's messages: `simulate` between clients in this process."""
