"""Twenty modules as people write them, each with example inputs and the part of the FLOP that no layer may miss."""

import math

import torch
from torch import nn

F = nn.functional


class UNet(nn.Module):
    """Skips by concatenation, up by transposed convolution and by interpolation."""

    def __init__(self):
        super().__init__()
        self.down1, self.down2 = self._block(3, 8), self._block(8, 16)
        self.bottom = self._block(16, 32)
        self.up2 = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.merge2 = self._block(32, 16)
        self.merge1 = self._block(24, 8)
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def _block(cin, cout):
        return nn.Sequential(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True)
        )

    def forward(self, image):
        a = self.down1(image)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge2(torch.cat([self.up2(c), b], dim=1))
        a = self.merge1(torch.cat([F.interpolate(b, scale_factor=2, mode="bilinear"), a], dim=1))
        return self.head(a)


class SharedWeights(nn.Module):
    """One layer used three times, and a decoder that is the encoder transposed."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(32, 16)
        self.mix = nn.Linear(16, 16)
        self.bias = nn.Parameter(torch.zeros(32))

    def forward(self, x):
        h = torch.tanh(self.encode(x))
        for _ in range(3):
            h = h + torch.tanh(self.mix(h))
        return F.linear(h, self.encode.weight.t(), self.bias)


class MixerBlock(nn.Module):
    def __init__(self, patches, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.channels = nn.Sequential(
            nn.Linear(width, 3 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(3 * width, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 4, stride=4)
        self.blocks = nn.Sequential(MixerBlock(16, 24), MixerBlock(16, 24))
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 10)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


class BidirectionalGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 12, padding_idx=0)
        self.gru = nn.GRU(12, 16, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.head = nn.Linear(32, 5)

    def forward(self, tokens):
        y, _ = self.gru(self.embed(tokens))
        return self.head(y[:, -1])


class SequenceFirstLSTM(nn.Module):
    """Time first, and the final state as what is read."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        _, (h, _) = self.lstm(x.transpose(0, 1))
        return self.head(h[-1])


class Generator(nn.Module):
    """Transposed convolutions, as DCGAN has them."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(20, 32, 4, 1, 0, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2, inplace=True),
            nn.ConvTranspose2d(16, 3, 3, stride=2, padding=1, output_padding=1),
            nn.Tanh(),
        )

    def forward(self, noise):
        return self.net(noise[:, :, None, None])


class Functional(nn.Module):
    """Everything by function, with parameters that no submodule holds."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(6, 3, 3, 3))
        self.weight = nn.Parameter(torch.randn(10, 6 * 4 * 4))
        self.scale = nn.Parameter(torch.ones(10))

    def forward(self, image):
        x = F.relu(F.conv2d(image, self.kernel, stride=2, padding=1))
        x = F.adaptive_avg_pool2d(x, 4)
        x = F.linear(x.view(x.size(0), -1), self.weight)
        return F.log_softmax(x * self.scale, dim=-1)


class ViewsAndPermutes(nn.Module):
    """Channel shuffle and axial mixing: reshapes, permutes, splits."""

    def __init__(self):
        super().__init__()
        self.group = nn.Conv2d(8, 8, 1, groups=4)
        self.rows = nn.Linear(8, 8)
        self.columns = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        n, c, h, w = x.shape
        x = self.group(x).view(n, 4, c // 4, h, w).transpose(1, 2).reshape(n, c, h, w)
        a, b = x.chunk(2, dim=1)
        a = self.rows(a.contiguous())
        b = self.columns(b.permute(0, 1, 3, 2)).permute(0, 1, 3, 2)
        return torch.stack([a, b], dim=1).sum(dim=1).flatten(1)


class Attention(nn.Module):
    """Scaled dot-product attention with grouped keys."""

    def __init__(self, width=32, heads=4, key_heads=2):
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * key_heads * self.size, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        n, t, _ = x.shape
        q = self.q(x).view(n, t, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(n, t, 2, self.key_heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.out(y.transpose(1, 2).reshape(n, t, -1))


class Einsum(nn.Module):
    """Attention and a bilinear form by einsum."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Parameter(torch.randn(4, 16, 8)), nn.Parameter(torch.randn(4, 16, 8))
        self.v = nn.Parameter(torch.randn(4, 16, 8))
        self.out = nn.Parameter(torch.randn(4, 8, 16))

    def forward(self, x):
        q = torch.einsum("btc,hcd->bhtd", x, self.q)
        k = torch.einsum("btc,hcd->bhtd", x, self.k)
        v = torch.einsum("btc,hcd->bhtd", x, self.v)
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(8)
        return torch.einsum("bhtd,hdc->btc", scores.softmax(-1) @ v, self.out)


class LoopCell(nn.Module):
    """A recurrence written as a loop."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(6, 10)
        self.head = nn.Linear(10, 2)

    def forward(self, x):
        h = x.new_zeros(x.size(0), 10)
        states = []
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            states.append(h)
        return self.head(torch.stack(states, dim=1))


class GPTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (each.view(n, t, self.heads, c // self.heads).transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Tied head, positions by a table, a loss of its own."""

    def __init__(self, vocabulary=60, width=32, context=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([GPTBlock(width, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens, targets):
        positions = torch.arange(tokens.size(1), device=tokens.device)
        x = F.dropout(self.wte(tokens) + self.wpe(positions), 0.1, self.training)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return {"logits": logits, "loss": F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))}


class VAE(nn.Module):
    """Reparameterisation, and a loss of two parts by hand."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(32, 8), nn.Linear(32, 8)
        self.decoder = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64))

    def forward(self, x):
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        y = self.decoder(z)
        reconstruction = F.binary_cross_entropy_with_logits(y, torch.sigmoid(x), reduction="sum")
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        return reconstruction + divergence, y


class SqueezeExcite(nn.Module):
    """Depth-wise convolution, a gate per channel, a residual."""

    def __init__(self):
        super().__init__()
        self.expand, self.norm = nn.Conv2d(8, 24, 1), nn.BatchNorm2d(24)
        self.depth = nn.Conv2d(24, 24, 5, padding=2, groups=24)
        self.reduce, self.gate = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.project = nn.Conv2d(24, 8, 1)
        self.act = nn.SiLU()

    def forward(self, x):
        y = self.act(self.depth(self.act(self.norm(self.expand(x)))))
        gate = self.gate(self.act(self.reduce(F.adaptive_avg_pool2d(y, 1))))
        return x + self.project(y * torch.sigmoid(gate))


class SuperResolution(nn.Module):
    """Pixel shuffle, PReLU, reflection padding."""

    def __init__(self):
        super().__init__()
        self.pad = nn.ReflectionPad2d(2)
        self.conv = nn.Conv2d(3, 16, 5)
        self.act = nn.PReLU()
        self.up = nn.Conv2d(16, 12, 3, padding=1)

    def forward(self, x):
        return torch.clamp(F.pixel_shuffle(self.up(self.act(self.conv(self.pad(x)))), 2), 0.0, 1.0)


class BagOfWords(nn.Module):
    """A mean of embeddings under a mask."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens, mask):
        x = self.embed(tokens) * mask.unsqueeze(-1)
        x = x.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1.0)
        return self.head(x)


class SwinWindow(nn.Module):
    """Windows, shifted, with a bias per relative position and a mask in a buffer."""

    def __init__(self, width=16, heads=2, window=4, size=8):
        super().__init__()
        self.heads, self.window = heads, window
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.zeros((2 * window - 1) ** 2, heads))
        self.register_buffer("index", torch.randint(0, (2 * window - 1) ** 2, (window**2, window**2)))
        self.register_buffer("mask", torch.zeros((size // window) ** 2, window**2, window**2))

    def forward(self, x):
        n, h, w, c = x.shape
        s = self.window
        y = torch.roll(self.norm(x), shifts=(-2, -2), dims=(1, 2))
        y = y.view(n, h // s, s, w // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, s * s, c)
        q, k, v = self.qkv(y).reshape(y.size(0), s * s, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (c // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.index.view(-1)].view(s * s, s * s, -1).permute(2, 0, 1).contiguous()
        scores = scores + bias.unsqueeze(0)
        windows = self.mask.shape[0]
        scores = scores.view(n, windows, self.heads, s * s, s * s) + self.mask.unsqueeze(1).unsqueeze(0)
        scores = scores.view(-1, self.heads, s * s, s * s).softmax(dim=-1)
        y = self.out((scores @ v).transpose(1, 2).reshape(-1, s * s, c))
        y = y.view(n, h // s, w // s, s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return x + torch.roll(y, shifts=(2, 2), dims=(1, 2))


class WeightNorm(nn.Module):
    """Causal convolutions over time whose weights are normalised in every step."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 12, 3, dilation=2))
        self.conv2 = nn.Conv1d(12, 4, 3)
        self.register_buffer("decay", torch.linspace(1, 0, 16))

    def forward(self, x):
        y = F.relu(self.conv1(F.pad(x, (4, 0))))
        y = self.conv2(F.pad(y, (2, 0)))
        return (x + y) * self.decay


class Encoder(nn.Module):
    """torch's own transformer layers, with a class token, a mask and a frozen input."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, 16)
        self.embed.requires_grad_(False)
        self.token = nn.Parameter(torch.zeros(1, 1, 16))
        self.position = nn.Parameter(torch.zeros(1, 11, 16))
        layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=32, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("causal", torch.triu(torch.full((11, 11), -torch.inf), diagonal=1))
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.embed(x)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1) + self.position
        return self.head(self.layers(x, mask=self.causal, is_causal=True)[:, 0])


class CrossAttention(nn.Module):
    """nn.MultiheadAttention over another sequence, which splits one matrix of weights."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.norm = nn.LayerNorm(16)

    def forward(self, x, context):
        y, _ = self.attention(x, context, context, need_weights=False)
        return self.norm(x + y)


class WritesInPlace(nn.Module):
    """A buffer filled part by part, activations in place, and a branch without gradient."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 6), nn.Linear(8, 6)
        self.teacher = nn.Linear(8, 6)
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x):
        y = torch.zeros(x.size(0), 2, 6)
        y[:, 0] = self.a(x).relu_()
        y[:, 1] = self.b(x).mul_(2.0)
        with torch.no_grad():
            target = self.teacher(x)
            self.seen.mul_(0.9).add_(target.mean(0), alpha=0.1)
        return ((y.sum(1) - target) ** 2).mean()


def _tokens(*shape, high=50):
    return torch.randint(0, high, shape)


MODULES = {
    "u_net": (UNet, lambda n: torch.randn(n, 3, 16, 16)),
    "shared_weights": (SharedWeights, lambda n: torch.randn(n, 32)),
    "mixer": (Mixer, lambda n: torch.randn(n, 3, 16, 16)),
    "bidirectional_gru": (BidirectionalGRU, lambda n: _tokens(n, 7)),
    "sequence_first_lstm": (SequenceFirstLSTM, lambda n: torch.randn(n, 9, 8)),
    "generator": (Generator, lambda n: torch.randn(n, 20)),
    "functional": (Functional, lambda n: torch.randn(n, 3, 16, 16)),
    "views_and_permutes": (ViewsAndPermutes, lambda n: torch.randn(n, 8, 8, 8)),
    "attention": (Attention, lambda n: torch.randn(n, 10, 32)),
    "einsum": (Einsum, lambda n: torch.randn(n, 9, 16)),
    "loop": (LoopCell, lambda n: torch.randn(n, 5, 6)),
    "gpt": (GPT, lambda n: {"tokens": _tokens(n, 12), "targets": _tokens(n, 12)}),
    "vae": (VAE, lambda n: torch.randn(n, 64)),
    "squeeze_excite": (SqueezeExcite, lambda n: torch.randn(n, 8, 12, 12)),
    "super_resolution": (SuperResolution, lambda n: torch.randn(n, 3, 10, 10)),
    "bag_of_words": (BagOfWords, lambda n: (_tokens(n, 6), torch.ones(n, 6))),
    "swin_window": (SwinWindow, lambda n: torch.randn(n, 8, 8, 16)),
    "weight_norm": (WeightNorm, lambda n: torch.randn(n, 4, 16)),
    "encoder": (Encoder, lambda n: torch.randn(n, 10, 12)),
    "cross_attention": (CrossAttention, lambda n: (torch.randn(n, 5, 16), torch.randn(n, 7, 16))),
    "writes_in_place": (WritesInPlace, lambda n: torch.randn(n, 8)),
}
