"""Which axis holds the samples: what is refused, on networks that depend on their batch size."""

import pytest
import torch
from torch import nn

import perfmodel as pm
from perfmodel.errors import FixedBatchWarning
from perfmodel.importers.recording import layout


@pytest.mark.parametrize(
    "extents",
    [
        (2, 4, 7),  # a multiple of the batch at two sizes and not at the third
        (2, 5, 8),  # grows, but by 3 for every 2 samples
        (3, 5, 7),  # one more than the batch
        (4, 4, 6),  # the larger of 4 and the batch: 4 is twice the first batch size
    ],
)
def test_an_extent_that_grows_otherwise_than_the_batch_is_no_axis_of_samples(extents):
    sizes = (2, 4, 6)
    assert layout([(extent, 3) for extent in extents], batch_sizes=sizes) is None
    assert layout([(size, 3) for size in sizes], batch_sizes=sizes).axes == (None, 0)


class ByBatch(nn.Module):
    """Is another network on four samples than on any other number."""

    def __init__(self, on_four, otherwise):
        super().__init__()
        self.fc = nn.Linear(6, 5)
        self.on_four, self.otherwise = on_four, otherwise

    def forward(self, x):
        return (self.on_four if len(x) == 4 else self.otherwise)(self.fc(x))


@pytest.mark.parametrize(
    ("otherwise", "why"),
    [
        (torch.tanh, "calls aten.relu at batch size 4, where '' calls aten.tanh"),
        (lambda y: torch.relu(torch.relu(y)), "the number of operations differs between batch sizes 4 and"),
    ],
)
def test_a_network_that_is_another_at_another_batch_size_holds_for_one(otherwise, why):
    with pytest.warns(FixedBatchWarning, match=why):
        graph = pm.from_torch(ByBatch(torch.relu, otherwise), torch.empty(4, 6))
    assert graph.fixed_batch_size == 4
    assert [node.layer.kind for node in graph.layers] == ["dense", "relu"]


class LastChannels(nn.Module):
    """Convolves an image whose channels lie last in memory; pooling does more where they still do afterwards."""

    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(6, 4, 1), nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(self.conv(x.permute(0, 3, 1, 2)))


@pytest.mark.parametrize("training", [True, False])
def test_a_processors_kernels_for_many_samples_are_no_difference_between_batch_sizes(training):
    few, many = (pm.from_torch(LastChannels(), torch.empty(n, 8, 8, 6), training=training) for n in (8, 16))
    assert few.fixed_batch_size is None
    assert [node.layer.kind for node in few.layers] == [node.layer.kind for node in many.layers]
    assert torch._C._get_nnpack_enabled()


def test_a_network_that_does_the_same_by_another_path_is_free():
    graph = pm.from_torch(ByBatch(torch.relu, torch.relu), torch.empty(4, 6))
    assert graph.fixed_batch_size is None
