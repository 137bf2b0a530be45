"""Reports that compare predictions: plans, sweeps, formulas, and changes to a job."""
