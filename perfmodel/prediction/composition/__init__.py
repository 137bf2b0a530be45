"""The composition of a job's step: stages, schedule, exchanges, stragglers, copies and input to one StepTime."""
