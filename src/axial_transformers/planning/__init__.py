"""Planning: what a configuration needs, what a machine has, and whether they fit. The entry is `plan.plan`."""
