"""Peaks and bandwidths of the shipped GPUs against the arithmetic of their data sheets, redone from other facts.

The loader already compares fp32 with lanes and clock, so each row here rests on facts the files do not hold: cores of
the whole board, tensor-core rates and their clock, bus width and data rate. Tolerance 1 %: data sheets round.
"""

import pytest

import perfmodel as pm
from perfmodel.hardware import spec_files
from perfmodel.hardware.gpu import Gpu

GPUS = {name: pm.load_device(name) for name in spec_files.names("devices")}
GPUS = {name: device for name, device in GPUS.items() if isinstance(device, Gpu)}

# cores, boost MHz, bus width in bits, Gb/s per pin
CORES_CLOCK_BUS_RATE = {
    "tesla_k20": (2496, 706, 320, 5.2),
    "tesla_k20x": (2688, 732, 384, 5.2),
    "tesla_k40": (2880, 875, 384, 6.008),
    "tesla_k80_gk210": (4992 / 2, 875, 384, 5.012),
    "gtx_titan_black": (2880, 980, 384, 7.0),
    "gtx_980": (2048, 1216, 256, 7.0),
    "gtx_980_ti": (2816, 1075, 384, 7.012),
    "titan_x_maxwell": (3072, 1075, 384, 7.012),
    "tesla_m40": (3072, 1114, 384, 6.0),
    "tesla_m60": (4096 / 2, 1178, 256, 5.012),
    "gtx_1070": (1920, 1683, 256, 8.008),
    "gtx_1080": (2560, 1733, 256, 10.0),
    "titan_x_pascal": (3584, 1531, 384, 10.008),
    "gtx_1080_ti": (3584, 1582, 352, 11.008),
    "titan_xp": (3840, 1582, 384, 11.408),
    "tesla_p40": (3840, 1531, 384, 7.232),
    "tesla_p100_pcie": (3584, 1303, 4096, 1.43),
    "tesla_p100_sxm2": (3584, 1480, 4096, 1.43),
    "gtx_1060": (1280, 1708, 192, 8.0),
    "tesla_p4": (2560, 1114, 256, 6.0),
    "titan_v": (5120, 1455, 3072, 1.7),
    "v100_pcie": (5120, 1380, 4096, 1.752),
    "v100_sxm2": (5120, 1530, 4096, 1.752),
    "v100_sxm2_32gb": (5120, 1530, 4096, 1.752),
    "t4": (2560, 1590, 256, 10.0),
    "rtx_2080_ti": (4352, 1545, 352, 14.0),
    "titan_rtx": (4608, 1770, 384, 14.0),
    "rtx_2060": (1920, 1680, 192, 14.0),
    "rtx_2070": (2304, 1620, 256, 14.0),
    "rtx_2070_super": (2560, 1770, 256, 14.0),
    "rtx_2080": (2944, 1710, 256, 14.0),
    "rtx_2080_super": (3072, 1815, 256, 15.5),
    "gtx_1660_ti": (1536, 1770, 192, 12.0),
    "quadro_rtx_6000": (4608, 1770, 384, 14.0),
    "quadro_rtx_8000": (4608, 1770, 384, 14.0),
    "a100_40_pcie": (6912, 1410, 5120, 2.43),
    "a100_40_sxm": (6912, 1410, 5120, 2.43),
    "a100_80_pcie": (6912, 1410, 5120, 3.024),
    "a100_80_sxm": (6912, 1410, 5120, 3.186),
    "a800_80_sxm": (6912, 1410, 5120, 3.186),
    "a30": (3584, 1440, 3072, 2.43),
    "rtx_3060": (3584, 1777, 192, 15.0),
    "rtx_3060_ti": (4864, 1665, 256, 14.0),
    "rtx_3070": (5888, 1725, 256, 14.0),
    "rtx_3070_ti": (6144, 1770, 256, 19.0),
    "rtx_3080": (8704, 1710, 320, 19.0),
    "rtx_3080_ti": (10240, 1665, 384, 19.0),
    "rtx_3090": (10496, 1695, 384, 19.5),
    "rtx_3090_ti": (10752, 1860, 384, 21.0),
    "rtx_a4000": (6144, 1560, 256, 14.0),
    "rtx_a5000": (8192, 1695, 384, 16.0),
    "rtx_a6000": (10752, 1800, 384, 16.0),
    "a10": (9216, 1695, 384, 12.5),
    "a10g": (10240, 1710, 384, 12.5),
    "a40": (10752, 1740, 384, 14.5),
    "l4": (7424, 2040, 192, 12.5),
    "l20": (11776, 2520, 384, 18.0),
    "l40": (18176, 2490, 384, 18.0),
    "l40s": (18176, 2520, 384, 18.0),
    "rtx_6000_ada": (18176, 2505, 384, 20.0),
    "rtx_4060": (3072, 2460, 128, 17.0),
    "rtx_4060_ti_16gb": (4352, 2535, 128, 18.0),
    "rtx_4070": (5888, 2475, 192, 21.0),
    "rtx_4070_super": (7168, 2475, 192, 21.0),
    "rtx_4070_ti": (7680, 2610, 192, 21.0),
    "rtx_4070_ti_super": (8448, 2610, 256, 21.0),
    "rtx_4080": (9728, 2505, 256, 22.4),
    "rtx_4080_super": (10240, 2550, 256, 23.0),
    "rtx_4090": (16384, 2520, 384, 21.0),
    "h100_pcie": (14592, 1755, 5120, 3.186),
    "h100_sxm": (16896, 1980, 5120, 5.234),
    "h800_sxm": (16896, 1980, 5120, 5.234),
    "h100_sxm_96_hbm2e": (16896, 1980, 6144, 3.125),  # six stacks
    "h100_nvl": (16896, 1785, 6016, 5.24),
    "h20": (9984, 1980, 6144, 5.2),
    "h200_sxm": (16896, 1980, 6144, 6.25),
    "b200": (18944, 1965, 8192, 7.8125),
    "gh200_144gb": (16896, 1980, 6144, 6.38),
    "b300": (18944, 1965, 8192, 7.8125),
    "gb200": (18944, 2062, 8192, 7.8125),
    "rtx_5060_ti_16gb": (4608, 2572, 128, 28.0),
    "rtx_5070": (6144, 2512, 192, 28.0),
    "rtx_5070_ti": (8960, 2452, 256, 28.0),
    "rtx_5080": (10752, 2617, 256, 30.0),
    "rtx_5090": (21760, 2407, 512, 28.0),
    "rtx_pro_6000_blackwell": (24064, 2617, 512, 28.0),
    "tpu_v4": (2 * 128 * 8, 1049, 4096, 2.344),  # multiply-adds of the vector units of two cores
    "tpu_v5e": (128 * 8, 1503, 2048, 3.2),
    "tpu_v5p": (2 * 128 * 8, 1751, 6144, 3.6),
    "tpu_v6e": (128 * 8, 1751, 2048, 6.4),
    "trainium2": (8 * 128 * 128, 690, 4096, 5.664),  # the matrix engines, at the clock of the printed rate of fp32
    "mi325x": (2 * 19456, 2100, 8192, 5.86),
    "mi355x": (2 * 16384, 2400, 8192, 7.8125),
    "gaudi2": (24 * 64, 1650, 6144, 3.19),  # fp32 lanes of the vector cores at the clock of the matrix engines
    "gaudi3": (64 * 64, 1600, 8192, 3.61),
    "mi250x_gcd": (2 * 14080 / 2, 1700, 4096, 3.2),  # two packed fp32 operations a cycle and stream processor
    "mi300x": (2 * 19456, 2100, 8192, 5.176),  # two fp32 operations a cycle and stream processor
}

# fp16 on tensor or matrix cores: units, multiply-adds a unit and cycle with fp32 accumulation, MHz of these units
TENSOR = {
    "titan_v": (80, 512, 1455),
    "v100_pcie": (80, 512, 1380),
    "v100_sxm2": (80, 512, 1530),
    "v100_sxm2_32gb": (80, 512, 1530),
    "t4": (40, 512, 1590),
    "rtx_2080_ti": (68, 256, 1545),  # half rate on consumer boards
    "rtx_2060": (30, 256, 1680),
    "rtx_2070": (36, 256, 1620),
    "rtx_2070_super": (40, 256, 1770),
    "rtx_2080": (46, 256, 1710),
    "rtx_2080_super": (48, 256, 1815),
    "titan_rtx": (72, 512, 1770),
    "quadro_rtx_6000": (72, 512, 1770),
    "quadro_rtx_8000": (72, 512, 1770),
    "a100_40_pcie": (108, 1024, 1410),
    "a100_40_sxm": (108, 1024, 1410),
    "a100_80_pcie": (108, 1024, 1410),
    "a100_80_sxm": (108, 1024, 1410),
    "a800_80_sxm": (108, 1024, 1410),
    "a30": (56, 1024, 1440),
    "rtx_3060": (28, 256, 1777),
    "rtx_3060_ti": (38, 256, 1665),
    "rtx_3070": (46, 256, 1725),
    "rtx_3070_ti": (48, 256, 1770),
    "rtx_3080": (68, 256, 1710),
    "rtx_3080_ti": (80, 256, 1665),
    "rtx_3090": (82, 256, 1695),
    "rtx_3090_ti": (84, 256, 1860),
    "rtx_a4000": (48, 512, 1560),
    "rtx_a5000": (64, 512, 1695),
    "rtx_a6000": (84, 512, 1800),
    "a10": (72, 512, 1695),
    "a10g": (80, 256, 1710),
    "a40": (84, 512, 1740),
    "l4": (58, 512, 2040),
    "l20": (92, 256, 2520),
    "l40": (142, 256, 2490),
    "l40s": (142, 512, 2490),  # the data sheet's 362 is 1 % below 2520 MHz
    "rtx_6000_ada": (142, 512, 2505),
    "rtx_4060": (24, 256, 2460),
    "rtx_4060_ti_16gb": (34, 256, 2535),
    "rtx_4070": (46, 256, 2475),
    "rtx_4070_super": (56, 256, 2475),
    "rtx_4070_ti": (60, 256, 2610),
    "rtx_4070_ti_super": (66, 256, 2610),
    "rtx_4080": (76, 256, 2505),
    "rtx_4080_super": (80, 256, 2550),
    "rtx_4090": (128, 256, 2520),
    "h100_pcie": (114, 2048, 1620),
    "h100_sxm": (132, 2048, 1830),
    "h800_sxm": (132, 2048, 1830),
    "h100_sxm_96_hbm2e": (132, 2048, 1830),
    "h200_sxm": (132, 2048, 1830),
    "mi250x_gcd": (110, 512, 1700),
    "mi300x": (304, 1024, 2100),
    "mi325x": (304, 1024, 2100),
    "mi355x": (256, 2048, 2400),
    "gh200_144gb": (132, 2048, 1830),
    "rtx_5060_ti_16gb": (36, 256, 2572),
    "rtx_5070": (48, 256, 2512),
    "rtx_5070_ti": (70, 256, 2452),
    "rtx_5080": (84, 256, 2617),
    "rtx_5090": (170, 256, 2407),
    "rtx_pro_6000_blackwell": (188, 512, 2617),
    "trainium2": (8, 128 * 128, 2545),
}
ONE_RATE = {"gaudi3", "trainium2"}
"""Chips whose engines do several types at one rate, or print fp8 at another clock than bf16."""
NO_PUBLISHED_TENSOR_CLOCK = {"b200", "b300", "gb200", "h100_nvl", "h20"}


def test_every_gpu_is_recomputed():
    assert set(CORES_CLOCK_BUS_RATE) == set(GPUS)
    with_tensor_cores = {
        name for name, gpu in GPUS.items() if (gpu.peak_tflop_per_s.fp16 or 0) > 2 * gpu.peak_tflop_per_s.fp32 * 0.95
    } - {"tesla_p100_pcie", "tesla_p100_sxm2"}  # packed vector arithmetic
    assert with_tensor_cores | {"rtx_3090", "rtx_4090", "rtx_5090"} == set(TENSOR) | NO_PUBLISHED_TENSOR_CLOCK


@pytest.mark.parametrize("name", sorted(GPUS))
def test_vector_peak_and_bandwidth(name):
    cores, clock_mhz, bus_bits, gbit_per_s = CORES_CLOCK_BUS_RATE[name]
    gpu = GPUS[name]
    assert gpu.peak_flop_per_s("fp32") == pytest.approx(2 * cores * clock_mhz * 1e6, rel=0.01)
    assert gpu.memory_bandwidth_bytes_per_s == pytest.approx(bus_bits * gbit_per_s * 1e9 / 8, rel=0.01)


@pytest.mark.parametrize("name", sorted(TENSOR))
def test_tensor_peak_is_dense(name):
    units, multiply_adds, clock_mhz = TENSOR[name]
    assert GPUS[name].peak_flop_per_s("fp16") == pytest.approx(2 * units * multiply_adds * clock_mhz * 1e6, rel=0.01)


@pytest.mark.parametrize("name", sorted(GPUS))
def test_no_sparse_rate_slipped_in(name):
    """tf32 : bf16 : fp8 is 1 : 2 : 4 in every generation that has them all (consumer Ampere and Ada: fp8 alone)."""
    listed = GPUS[name].peak_tflop_per_s
    if listed.bf16 and listed.tf32 and name not in ONE_RATE:
        assert listed.bf16 / listed.tf32 == pytest.approx(2, rel=0.02)
    if listed.bf16 and listed.fp8 and name not in ONE_RATE:
        assert listed.fp8 / listed.bf16 == pytest.approx(2, rel=0.02)
    if listed.bf16 and listed.fp16:
        assert listed.bf16 == listed.fp16


def test_the_k80_is_one_die_and_its_board_no_device():
    """Two dies are two devices: their memory is not pooled and a kernel runs on one of them."""
    with pytest.raises(pm.errors.UnknownNameError, match="tesla_k80_gk210"):
        pm.load_device("tesla_k80")
    assert 2 * GPUS["tesla_k80_gk210"].peak_tflop_per_s.fp32 == pytest.approx(8.74, rel=0.001)
