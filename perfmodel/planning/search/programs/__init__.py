"""Training programs: the layouts that each can run, and the command that starts one."""
