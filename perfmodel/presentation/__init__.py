"""Presentation of plain records: quantities as text, tables for print and notebook, matplotlib figures.

Uses no domain classes: it receives rows, numbers and labels.
"""
