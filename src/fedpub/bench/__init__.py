"""How fast things are: medians after a warm-up, ratios in one run, shares of the roofline."""
