"""Search: layouts of Llama-3-8B on 64 H100 per second, and rows held against predict.

Run: python benchmarks/searching.py [--rows 160]. One core; a process of its own, so files and graph are read for it.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import perfmodel as pm

JOB = {
    "system": "dgx_h100",
    "devices": 64,
    "global_batch_size": 512,
    "tokens": 1e12,
    "optimizer": "adamw",
    "framework": "megatron_core",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=160, help="random rows that predict answers too")
    given = parser.parse_args()
    begun, worked = time.perf_counter(), time.process_time()
    graph = pm.zoo.llama(size="llama3_8b")
    s = pm.search(graph, **JOB)
    took, worked = time.perf_counter() - begun, time.process_time() - worked
    print(f"{s.title}: {took:.2f} s, {worked:.2f} core-seconds from the first call on")
    fullest = np.argsort([-row.memory_bytes for row in s.rows])[:20].tolist()
    random = np.random.default_rng(1).choice(len(s), size=given.rows, replace=False).tolist()
    worst = 0.0
    for rank in [*range(20), *fullest, *random]:
        p, row = s.found(rank).job.predict(), s.rows[rank]
        worst = max(worst, abs(row.step_s / p.step_s - 1), abs(row.memory_bytes / p.memory.total_bytes - 1))
    print(f"  the first 20, the 20 fullest and {given.rows} random rows equal predict, at worst to {worst:.1e}")
    assert worst < 1e-12
    print(s)


if __name__ == "__main__":
    main()
