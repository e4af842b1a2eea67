"""Checks of everything that comes from outside, before it is used: fields, uploads of sites, weights."""
