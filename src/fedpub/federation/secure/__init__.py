"""Secure aggregation: the sum of one vector per member of a group, and nothing of a single one.

The protocol of Bonawitz et al. (2017), on the graph of neighbours of Bell et al. (2020) where groups are large, as
functions and objects without input or output. docs/secure-aggregation.md specifies it; the steps are the methods of
`Party`, which a site has, and `Aggregator`, which the coordinator has.
"""
