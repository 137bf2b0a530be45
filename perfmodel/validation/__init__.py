"""Predicted against measured: metrics, naive baselines, protocols and the report. It can fail.

- ``validate``: the entry point, ``pm.validate``.
- ``protocols``: which rows are fitted before scoring; naive rules in the same folds.
- ``scores``: metrics, reports and intervals of scored cells.
- ``tables``: tables that are scored in their own way.
- ``live``: networks on the machine at hand, ``pm.validate_live``.
"""
