"""Formulas for time: one per function, on plain numbers, arrays or symbols; no spec objects."""
