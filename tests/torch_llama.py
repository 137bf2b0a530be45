"""A Llama-like network of 6.7 billion parameters on the meta device, imported; prints what that took as JSON."""

import json
import re
import resource
import sys
import warnings
from pathlib import Path

import torch
from torch import nn

import perfmodel as pm

F = nn.functional
WIDTH, LAYERS, HEADS, INNER, VOCABULARY = 4096, 32, 32, 11008, 32000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x, cosine, sine):
        n, t, c = x.shape
        y = self.norm1(x)
        q, k, v = (f(y).view(n, t, HEADS, c // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = (each * cosine + torch.cat([-each[..., 64:], each[..., :64]], dim=-1) * sine for each in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, c))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        angles = torch.arange(tokens.size(1))[:, None] * torch.linspace(1, 0, 128)
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, angles.cos(), angles.sin())
        return self.head(self.norm(x))


def peak_resident_bytes():
    """Of this program alone: on Linux getrusage carries the peak of the process that started it over to it."""
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status.read_text())[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    with torch.device("meta"):
        module = Llama()
        tokens = torch.zeros(1, 2048, dtype=torch.long)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        graph = pm.from_torch(module, tokens)
    found = {
        "parameter_count": graph.parameter_count,
        "module_parameter_count": sum(each.numel() for each in module.parameters()),
        "peak_rss_bytes": peak_resident_bytes(),
        "forward_multiply_adds": graph.multiply_add_count(batch_size=1),
        "warnings": [str(each.message) for each in caught],
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
