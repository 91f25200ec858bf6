"""Planning: what a configuration needs, and whether a machine has it. The entry is `plan.plan`."""
