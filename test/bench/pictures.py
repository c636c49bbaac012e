"""VQGAN (f = 8, Gumbel) and CLIP ViT-B/32 in plain torch, random weights: the layers of the
published models, with torch's own fused operations where it has them."""

import torch
from torch import nn
from torch.nn import functional as F


def norm(c):
    return nn.GroupNorm(32, c, eps=1e-6)


class Residual(nn.Module):
    def __init__(self, c, out):
        super().__init__()
        self.norm1, self.conv1 = norm(c), nn.Conv2d(c, out, 3, padding=1)
        self.norm2, self.conv2 = norm(out), nn.Conv2d(out, out, 3, padding=1)
        self.short = nn.Conv2d(c, out, 1) if c != out else nn.Identity()

    def forward(self, x):
        return self.short(x) + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.qkv, self.out = norm(c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, 1)
        w = torch.softmax(torch.bmm(q.transpose(1, 2), k) * q.shape[1] ** -0.5, 2)
        return x + self.out(torch.bmm(v, w.transpose(1, 2)).view_as(x))


class Down(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, stride=2)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)))


class Up(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


def vqgan():
    """Encoder to the logits of 8192 codes and decoder from their rows: 128 channels times 1, 1, 2,
    4; two residual blocks a level (the decoder three), attention where the map is 32 wide."""
    mult, ch, z = (1, 1, 2, 4), 128, 256
    c = ch
    enc = [nn.Conv2d(3, ch, 3, padding=1)]
    for i, m in enumerate(mult):
        for _ in range(2):
            enc.append(Residual(c, ch * m))
            c = ch * m
            if i == 3:
                enc.append(Attention(c))
        if i < 3:
            enc.append(Down(c))
    enc += [Residual(c, c), Attention(c), Residual(c, c), norm(c), nn.SiLU(), nn.Conv2d(c, z, 3, padding=1),
            nn.Conv2d(z, 256, 1), nn.Conv2d(256, 8192, 1)]
    dec = [nn.Conv2d(256, z, 1), nn.Conv2d(z, c, 3, padding=1), Residual(c, c), Attention(c), Residual(c, c)]
    for i in reversed(range(4)):
        for _ in range(3):
            dec.append(Residual(c, ch * mult[i]))
            c = ch * mult[i]
            if i == 3:
                dec.append(Attention(c))
        if i:
            dec.append(Up(c))
    dec += [norm(c), nn.SiLU(), nn.Conv2d(c, 3, 3, padding=1)]
    return nn.Sequential(*enc).eval(), nn.Sequential(*dec).eval(), nn.Embedding(8192, 256)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        a = q @ k.transpose(2, 3) * (C // self.heads) ** -0.5
        a = torch.softmax(a if mask is None else a + mask, 3)
        x = x + self.out((a @ v).transpose(1, 2).reshape(B, T, C))
        h = self.up(self.norm2(x))
        return x + self.down(h * torch.sigmoid(1.702 * h))


class Tower(nn.Module):
    def __init__(self, width, layers, tokens):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.position, self.first = nn.Parameter(torch.randn(tokens, width)), nn.Parameter(torch.randn(1, 1, width))
        self.proj = nn.Linear(width, 512, bias=False)


class Vision(Tower):
    def __init__(self):
        super().__init__(768, 12, 50)
        self.patches = nn.Conv2d(3, 768, 32, stride=32, bias=False)

    def forward(self, x):
        x = torch.cat([self.first, self.patches(x).flatten(2).transpose(1, 2)], 1)
        x = self.before(x + self.position)
        for block in self.blocks:
            x = block(x, None)
        return self.proj(self.after(x[:, 0]))


class Text(Tower):
    def __init__(self):
        super().__init__(512, 12, 77)
        self.table = nn.Embedding(49408, 512)
        self.register_buffer("mask", torch.full((77, 77), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.table(ids) + self.position
        for block in self.blocks:
            x = block(x, self.mask)
        return self.proj(self.after(x)[0, ids.argmax(1)])
