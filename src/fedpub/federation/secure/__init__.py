"""Secure aggregation: the coordinator gets sums over groups of sites, and nothing of a single one."""
