"""Predicted against measured: metrics, naive baselines, protocols and the report. It can fail.

- ``metrics``, ``baselines``: pure functions of arrays.
- ``cells``: predicts every scored cell of a measurement table from its Run.
- ``provenance``: refuses constants that come from the table they are scored on.
- ``report``: scores beside baselines, as text, rows and a figure.
- ``validate``: the entry point, ``pm.validate``.
- ``live``: networks on the machine at hand, ``pm.validate_live``; ``live_worker`` runs in a process of its own.
"""
