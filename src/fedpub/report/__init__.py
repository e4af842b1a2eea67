"""Finished and unfinished runs as a page to look at, tables to paste and figures to print."""
