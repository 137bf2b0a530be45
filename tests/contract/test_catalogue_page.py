"""docs/catalogue.md lists every shipped GPU and framework as its file states it.

Run this file as a script to write the generated tables of the page.
"""

from pathlib import Path

import pytest

import perfmodel as pm
from perfmodel.hardware import spec_files
from perfmodel.hardware.gpu import Gpu
from perfmodel.prediction.device.gpu_clock import sustained_clocks_mhz

PAGE = Path(__file__).parents[2] / "docs" / "catalogue.md"
TENSOR_TYPES = ("tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4", "int8")
ESTIMATED_EVERYWHERE = ("launch.", "context_mib", "host_link.", "idle_w", "clock_max_mhz", "power.")


def gpu_lines():
    gpus = {name: pm.load_device(name) for name in spec_files.names("devices")}
    gpus = {name: gpu for name, gpu in gpus.items() if isinstance(gpu, Gpu)}
    lines = [
        "| name | GPU | architecture | units | fp32 [TFLOP/s] | others [TFLOP/s] | in products [MHz] | memory [GiB] "
        "| [GB/s] | unread |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, gpu in sorted(gpus.items(), key=lambda item: (item[1].launch_date, item[0])):
        peaks = gpu.peak_tflop_per_s
        others = ", ".join(f"{dtype} {getattr(peaks, dtype):g}" for dtype in TENSOR_TYPES if getattr(peaks, dtype))
        fields = [field for source in gpu.source if source.verified is False for field in source.fields]
        unverified = sum(not field.startswith(ESTIMATED_EVERYWHERE) for field in fields)
        clocks = ", ".join(f"{clock:.0f}" for clock in sustained_clocks_mhz(gpu).values())
        lines.append(
            f"| `{name}` | {gpu.name} | {gpu.architecture} | {gpu.unit_count} | {peaks.fp32:g} | {others or '-'} | "
            f"{clocks} | {gpu.memory.capacity_gib:g} | {gpu.memory.bandwidth_gb_per_s:g} | {unverified} |"
        )
    return lines


def framework_lines():
    lines = [
        "| name | framework | products on GPUs | convolutions on GPUs | elsewhere | products on CPUs |",
        "|---|---|---|---|---|---|",
    ]
    for name in spec_files.names("frameworks"):
        profile = pm.load_framework(name)
        named = profile.library
        elsewhere = "; ".join(
            f"{architecture}: {', '.join(roles.values())}" for architecture, roles in named.by_architecture.items()
        )
        called = " | ".join((named.gpu_blas, named.gpu_dnn, elsewhere or "-", named.cpu_blas))
        lines.append(f"| `{name}` | {profile.name} | {called} |")
    return lines


def test_the_page_holds_the_generated_lines():
    page = PAGE.read_text(encoding="utf-8").splitlines()
    absent = [line for line in (*gpu_lines(), *framework_lines()) if line not in page]
    assert not absent, "run python tests/contract/test_catalogue_page.py"


@pytest.mark.parametrize("kind", ["devices", "frameworks"])
def test_the_page_lists_nothing_else(kind):
    listed = {line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")}
    known = {name for folder in ("devices", "frameworks") for name in spec_files.names(folder)}
    assert listed <= known
    assert {name for name in spec_files.names(kind) if kind == "frameworks"} <= listed


def written(page):
    """Return the page with its tables replaced by the generated ones."""
    for mark, lines in (("gpus", gpu_lines()), ("frameworks", framework_lines())):
        before, _, rest = page.partition(f"<!-- {mark}:start -->\n")
        _, _, after = rest.partition(f"<!-- {mark}:end -->")
        page = f"{before}<!-- {mark}:start -->\n" + "\n".join(lines) + f"\n<!-- {mark}:end -->{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
