"""Training programs: the layouts that each has, and the command that starts one."""
