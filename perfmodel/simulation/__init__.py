"""Discrete-event simulation: tasks that wait for one another and for resources, and share channels.

It uses only names and numbers: no spec files, layers or predictions.
"""

from perfmodel.simulation.engine import simulate
from perfmodel.simulation.pipeline import Stage, input_pipeline_tasks
from perfmodel.simulation.timeline import Span, Task, Timeline

__all__ = ["Span", "Stage", "Task", "Timeline", "input_pipeline_tasks", "simulate"]
