"""Configurations by the million: spaces, tasks, arrays, tables and files."""
