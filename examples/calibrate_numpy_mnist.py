"""Measure the kernels of numpy on this machine, predict a training step of a network written in numpy, and time it.

The network, 784-64-64-10 for handwritten digits, is never run by the calibration: what it measures are single products
and passes of other sizes.

Run:  python examples/calibrate_numpy_mnist.py                  # measures kernels first, about a minute
      python examples/calibrate_numpy_mnist.py my_machine.toml  # what perfmodel calibrate cpu --backend numpy wrote
"""

import statistics
import sys
import time
from itertools import pairwise

import numpy as np

import perfmodel as pm

WIDTHS = (784, 64, 64, 10)
BATCH_SIZE = 512
WARMUP_STEPS, REPEATS, STEPS = 5, 3, 30
RATE = 0.1


class Classifier:
    """Dense layers with rectifiers between them, a softmax at the end, and plain stochastic gradient descent."""

    def __init__(self, generator: np.random.Generator) -> None:
        pairs = pairwise(WIDTHS)
        self.weights = [(generator.standard_normal(pair) * np.sqrt(2 / pair[0])).astype(np.float32) for pair in pairs]
        self.biases = [np.zeros(width, np.float32) for width in WIDTHS[1:]]

    def step(self, images: np.ndarray, labels: np.ndarray) -> float:
        """Train on one mini-batch and return its loss."""
        inputs = [images]  # of each layer
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            inputs.append(np.maximum(inputs[-1] @ weight + bias, 0))
        scores = inputs[-1] @ self.weights[-1] + self.biases[-1]

        # cross entropy of the softmax, and its gradient
        scores -= scores.max(1, keepdims=True)
        probabilities = np.exp(scores)
        probabilities /= probabilities.sum(1, keepdims=True)
        rows = np.arange(len(labels))
        loss = -float(np.log(probabilities[rows, labels]).mean())
        gradient = probabilities
        gradient[rows, labels] -= 1
        gradient /= len(labels)

        for index in reversed(range(len(self.weights))):
            weight_gradient, bias_gradient = inputs[index].T @ gradient, gradient.sum(0)
            if index:
                gradient = gradient @ self.weights[index].T
                gradient *= inputs[index] > 0
            self.weights[index] -= RATE * weight_gradient
            self.biases[index] -= RATE * bias_gradient
        return loss


def measured_step_s() -> tuple[float, float]:
    """Return the median step over several repeats, and their spread."""
    generator = np.random.default_rng(0)
    network = Classifier(generator)
    images = generator.standard_normal((BATCH_SIZE, WIDTHS[0])).astype(np.float32)
    labels = generator.integers(WIDTHS[-1], size=BATCH_SIZE)
    losses = [network.step(images, labels) for _ in range(WARMUP_STEPS)]
    medians = []
    for _ in range(REPEATS):
        times = []
        for _ in range(STEPS):
            begun = time.perf_counter()
            losses.append(network.step(images, labels))
            times.append(time.perf_counter() - begun)
        medians.append(statistics.median(times))
    if not losses[-1] < losses[0]:
        message = f"the network does not learn: its loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
        raise RuntimeError(message)
    return statistics.median(medians), (max(medians) - min(medians)) / statistics.median(medians)


def main() -> None:
    """Calibrate or load, predict, measure."""
    path = sys.argv[1] if len(sys.argv) > 1 else None
    calibration = pm.calibrate("cpu", backend="numpy") if path is None else pm.load_calibration(path)
    graph = pm.zoo.feed_forward(features=WIDTHS[0], hidden=WIDTHS[1:-1], classes=WIDTHS[-1])
    p = pm.predict(graph, batch_size=BATCH_SIZE, device=calibration)
    step_s, spread = measured_step_s()
    low_s, high_s = p.interval_s
    print(f"calibration   {calibration.describe()}")
    print(f"predicted     {1e3 * p.step_s:.3f} ms a step of {BATCH_SIZE} ({1e3 * low_s:.3f} to {1e3 * high_s:.3f} ms)")
    print(f"measured      {1e3 * step_s:.3f} ms, repeats spread by {100 * spread:.0f} %")
    print(f"error         {100 * (p.step_s / step_s - 1):+.0f} %")


if __name__ == "__main__":
    main()
