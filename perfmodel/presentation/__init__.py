"""Presentation of plain records: quantities as text, tables for print and notebook, matplotlib figures.

Knows no domain class: it is given rows, numbers and labels.
"""
