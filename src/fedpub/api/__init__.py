"""The functions for programs and notebooks, and the results that they return."""
