"""perfmodel: how long a neural network takes to train or run on given hardware, why, and what would change.

>>> import perfmodel as pm
>>> p = pm.predict(pm.zoo.alexnet(), batch_size=16, device="gtx_1080", framework="torch_423cfba")
>>> p.step_s > 0
True

Everything public is reached from here; modules load when a name is first used, so that importing is instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from perfmodel import errors, measurements, zoo
    from perfmodel.calibration.calibrate import calibrate
    from perfmodel.framework.profile import FrameworkProfile, load_framework
    from perfmodel.graph import LayerGraph
    from perfmodel.graph.summary import GraphSummary
    from perfmodel.hardware.catalogue import (
        Catalogue,
        catalogue,
        load_dataset,
        load_device,
        load_library,
        load_link,
        load_price,
        load_storage,
        load_system,
    )
    from perfmodel.hardware.cluster import Cluster
    from perfmodel.hardware.cpu import Cpu
    from perfmodel.hardware.dataset import Dataset
    from perfmodel.hardware.fit_file import FitFile, load_calibration
    from perfmodel.hardware.gpu import Gpu
    from perfmodel.hardware.library import LibraryProfile
    from perfmodel.hardware.link import Link
    from perfmodel.hardware.measured_machine import Calibration, MeasuredMachine
    from perfmodel.hardware.price import InstancePrice, StoragePrice
    from perfmodel.hardware.storage import Storage
    from perfmodel.hardware.system import System
    from perfmodel.importers.audit import Audit, audit
    from perfmodel.importers.huggingface import from_huggingface_config
    from perfmodel.importers.onnx.file import from_onnx
    from perfmodel.importers.torch.module import from_torch
    from perfmodel.planning.advice import Advice, advise
    from perfmodel.planning.comparison import Comparison, compare
    from perfmodel.planning.formulas.formula import Elasticities, Formula, formula
    from perfmodel.planning.formulas.formula_text import ActiveBranches
    from perfmodel.planning.formulas.solutions import Solution
    from perfmodel.planning.plans.answer import Plan
    from perfmodel.planning.plans.plan import plan
    from perfmodel.planning.scaling import ScalingReport, StragglerSlowdown, scaling, straggler_slowdown
    from perfmodel.planning.sweeps.sweep import sweep
    from perfmodel.planning.sweeps.table import Sweep
    from perfmodel.planning.transfer import Refresh, Transfer, refresh, transfer
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.memory.batch_limit import max_batch_size
    from perfmodel.prediction.predict import predict
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.presentation.results import Result
    from perfmodel.presentation.tables import Table
    from perfmodel.records import Work
    from perfmodel.simulation.timeline import Timeline
    from perfmodel.validation.live.check import validate_live
    from perfmodel.validation.live.live_report import LiveReport
    from perfmodel.validation.protocols.fit_table import fit
    from perfmodel.validation.scores.table_report import RowReport
    from perfmodel.validation.scores.validation_report import ValidationReport
    from perfmodel.validation.tables.mullapudi import Illustration
    from perfmodel.validation.validate import validate

_MODULE_OF = {
    "ActiveBranches": "perfmodel.planning.formulas.formula_text",
    "Advice": "perfmodel.planning.advice",
    "Audit": "perfmodel.importers.audit",
    "Calibration": "perfmodel.hardware.measured_machine",
    "FitFile": "perfmodel.hardware.fit_file",
    "Catalogue": "perfmodel.hardware.catalogue",
    "Cluster": "perfmodel.hardware.cluster",
    "Comparison": "perfmodel.planning.comparison",
    "Cpu": "perfmodel.hardware.cpu",
    "Dataset": "perfmodel.hardware.dataset",
    "Elasticities": "perfmodel.planning.formulas.formula",
    "Formula": "perfmodel.planning.formulas.formula",
    "FrameworkProfile": "perfmodel.framework.profile",
    "Gpu": "perfmodel.hardware.gpu",
    "GraphSummary": "perfmodel.graph.summary",
    "Illustration": "perfmodel.validation.tables.mullapudi",
    "InstancePrice": "perfmodel.hardware.price",
    "Job": "perfmodel.prediction.job.job",
    "LayerGraph": "perfmodel.graph",
    "LibraryProfile": "perfmodel.hardware.library",
    "Link": "perfmodel.hardware.link",
    "LiveReport": "perfmodel.validation.live.live_report",
    "MeasuredMachine": "perfmodel.hardware.measured_machine",
    "Plan": "perfmodel.planning.plans.answer",
    "Prediction": "perfmodel.prediction.prediction",
    "Refresh": "perfmodel.planning.transfer",
    "Result": "perfmodel.presentation.results",
    "RowReport": "perfmodel.validation.scores.table_report",
    "ScalingReport": "perfmodel.planning.scaling",
    "Solution": "perfmodel.planning.formulas.solutions",
    "Storage": "perfmodel.hardware.storage",
    "StoragePrice": "perfmodel.hardware.price",
    "StragglerSlowdown": "perfmodel.planning.scaling",
    "Sweep": "perfmodel.planning.sweeps.table",
    "System": "perfmodel.hardware.system",
    "Table": "perfmodel.presentation.tables",
    "Timeline": "perfmodel.simulation.timeline",
    "Transfer": "perfmodel.planning.transfer",
    "ValidationReport": "perfmodel.validation.scores.validation_report",
    "Work": "perfmodel.records",
    "advise": "perfmodel.planning.advice",
    "audit": "perfmodel.importers.audit",
    "calibrate": "perfmodel.calibration.calibrate",
    "catalogue": "perfmodel.hardware.catalogue",
    "compare": "perfmodel.planning.comparison",
    "fit": "perfmodel.validation.protocols.fit_table",
    "formula": "perfmodel.planning.formulas.formula",
    "from_huggingface_config": "perfmodel.importers.huggingface",
    "from_onnx": "perfmodel.importers.onnx.file",
    "from_torch": "perfmodel.importers.torch.module",
    "load_calibration": "perfmodel.hardware.fit_file",
    "load_dataset": "perfmodel.hardware.catalogue",
    "load_device": "perfmodel.hardware.catalogue",
    "load_framework": "perfmodel.framework.profile",
    "load_library": "perfmodel.hardware.catalogue",
    "load_link": "perfmodel.hardware.catalogue",
    "load_price": "perfmodel.hardware.catalogue",
    "load_storage": "perfmodel.hardware.catalogue",
    "load_system": "perfmodel.hardware.catalogue",
    "max_batch_size": "perfmodel.prediction.memory.batch_limit",
    "plan": "perfmodel.planning.plans.plan",
    "predict": "perfmodel.prediction.predict",
    "refresh": "perfmodel.planning.transfer",
    "scaling": "perfmodel.planning.scaling",
    "straggler_slowdown": "perfmodel.planning.scaling",
    "sweep": "perfmodel.planning.sweeps.sweep",
    "transfer": "perfmodel.planning.transfer",
    "validate": "perfmodel.validation.validate",
    "validate_live": "perfmodel.validation.live.check",
}
_SUBMODULES = ("errors", "layers", "measurements", "zoo")

__all__ = [
    "ActiveBranches",
    "Advice",
    "Audit",
    "Calibration",
    "Catalogue",
    "Cluster",
    "Comparison",
    "Cpu",
    "Dataset",
    "Elasticities",
    "FitFile",
    "Formula",
    "FrameworkProfile",
    "Gpu",
    "GraphSummary",
    "Illustration",
    "InstancePrice",
    "Job",
    "LayerGraph",
    "LibraryProfile",
    "Link",
    "LiveReport",
    "MeasuredMachine",
    "Plan",
    "Prediction",
    "Refresh",
    "Result",
    "RowReport",
    "ScalingReport",
    "Solution",
    "Storage",
    "StoragePrice",
    "StragglerSlowdown",
    "Sweep",
    "System",
    "Table",
    "Timeline",
    "Transfer",
    "ValidationReport",
    "Work",
    "__version__",
    "advise",
    "audit",
    "calibrate",
    "catalogue",
    "compare",
    "errors",
    "fit",
    "formula",
    "from_huggingface_config",
    "from_onnx",
    "from_torch",
    "layers",
    "load_calibration",
    "load_dataset",
    "load_device",
    "load_framework",
    "load_library",
    "load_link",
    "load_price",
    "load_storage",
    "load_system",
    "max_batch_size",
    "measurements",
    "plan",
    "predict",
    "refresh",
    "scaling",
    "straggler_slowdown",
    "sweep",
    "transfer",
    "validate",
    "validate_live",
    "zoo",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    elif name in _SUBMODULES:
        value = import_module(f"perfmodel.{name}")
    else:
        message = f"module 'perfmodel' has no attribute {name!r}"
        raise AttributeError(message)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
