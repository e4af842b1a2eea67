"""Arithmetic on stacked tensors, random streams and files: nothing here knows what a graph is."""
