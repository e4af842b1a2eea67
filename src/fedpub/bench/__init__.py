"""Benchmarks: medians after a warm-up, ratios within one run, shares of the roofline."""
