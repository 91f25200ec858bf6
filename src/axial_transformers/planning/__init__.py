"""Planning: what a configuration needs, what a machine has, and whether they fit."""

from axial_transformers.planning.machine import Machine, this_machine
from axial_transformers.planning.plan import CHANGEABLE, Plan, describe, plan

__all__ = ["CHANGEABLE", "Machine", "Plan", "describe", "plan", "this_machine"]
