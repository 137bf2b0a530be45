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
    from perfmodel.hardware.catalogue import (
        catalogue,
        load_dataset,
        load_device,
        load_library,
        load_link,
        load_price,
        load_storage,
        load_system,
    )
    from perfmodel.hardware.dataset import Dataset
    from perfmodel.hardware.fit_file import load_calibration
    from perfmodel.hardware.measured_machine import Calibration
    from perfmodel.importers.audit import audit
    from perfmodel.importers.huggingface import from_huggingface_config
    from perfmodel.importers.onnx.file import from_onnx
    from perfmodel.importers.torch.module import from_torch
    from perfmodel.planning.advice import Advice, advise
    from perfmodel.planning.comparison import Comparison, compare
    from perfmodel.planning.formulas.formula import Formula, formula
    from perfmodel.planning.plans.plan import plan
    from perfmodel.planning.plans.report import Plan
    from perfmodel.planning.scaling import ScalingReport, scaling
    from perfmodel.planning.straggler_slowdown import straggler_slowdown
    from perfmodel.planning.sweeps.sweep import sweep
    from perfmodel.planning.sweeps.table import Sweep
    from perfmodel.planning.transfer import refresh, transfer
    from perfmodel.prediction.job.job import Job
    from perfmodel.prediction.memory.batch_limit import max_batch_size
    from perfmodel.prediction.predict import predict
    from perfmodel.prediction.prediction import Prediction
    from perfmodel.records import Work
    from perfmodel.validation.live.check import validate_live
    from perfmodel.validation.protocols.fit_table import fit
    from perfmodel.validation.validate import validate

_MODULE_OF = {
    "Advice": "perfmodel.planning.advice",
    "Calibration": "perfmodel.hardware.measured_machine",
    "Comparison": "perfmodel.planning.comparison",
    "Dataset": "perfmodel.hardware.dataset",
    "Formula": "perfmodel.planning.formulas.formula",
    "FrameworkProfile": "perfmodel.framework.profile",
    "Job": "perfmodel.prediction.job.job",
    "LayerGraph": "perfmodel.graph",
    "Plan": "perfmodel.planning.plans.report",
    "Prediction": "perfmodel.prediction.prediction",
    "ScalingReport": "perfmodel.planning.scaling",
    "Sweep": "perfmodel.planning.sweeps.table",
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
    "straggler_slowdown": "perfmodel.planning.straggler_slowdown",
    "sweep": "perfmodel.planning.sweeps.sweep",
    "transfer": "perfmodel.planning.transfer",
    "validate": "perfmodel.validation.validate",
    "validate_live": "perfmodel.validation.live.check",
}
_SUBMODULES = ("errors", "layers", "measurements", "zoo")

__all__ = [
    "Advice",
    "Calibration",
    "Comparison",
    "Dataset",
    "Formula",
    "FrameworkProfile",
    "Job",
    "LayerGraph",
    "Plan",
    "Prediction",
    "ScalingReport",
    "Sweep",
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
