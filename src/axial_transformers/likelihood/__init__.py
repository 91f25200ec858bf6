"""Exact likelihood: bits of a site, bits/dim of a data set, outliers, and the dependencies between sites."""
