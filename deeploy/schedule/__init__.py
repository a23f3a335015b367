"""The schedule of a plan: what runs, moves and waits, as one tree that is printed as C, walked for time, checked and shown as text."""

from deeploy.schedule.build import build_schedule
from deeploy.schedule.ir import Schedule

__all__ = ["Schedule", "build_schedule"]
