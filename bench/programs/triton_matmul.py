"""A matrix product as Triton's users write them: Triton tries the shapes that the GPU says it has room for, and keeps the fastest."""

import torch
import triton
import triton.language as tl

SHAPES = [  # rows, columns and depth of a block, stages of its pipeline, warps
    (128, 256, 64, 3, 8),
    (128, 128, 64, 3, 8),
    (128, 128, 64, 2, 8),
    (128, 128, 32, 3, 8),
    (128, 128, 32, 2, 8),
    (128, 64, 32, 3, 4),
    (64, 128, 32, 3, 4),
    (128, 128, 64, 1, 8),
]


@triton.autotune(
    configs=[triton.Config({"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}, num_stages=stages, num_warps=warps) for m, n, k, stages, warps in SHAPES],
    key=["size"],
)
@triton.jit
def square(a, b, c, size, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c = a b, each size by size and row after row; size is a multiple of each block's sides."""
    group = 8  # rows of blocks that go together, for the second-level cache
    down = size // BLOCK_M
    across = size // BLOCK_N
    block = tl.program_id(0)
    first = block // (group * across) * group
    rows = tl.minimum(down - first, group)
    row = first + block % (group * across) % rows
    column = block % (group * across) // rows
    m = row * BLOCK_M + tl.arange(0, BLOCK_M)
    n = column * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    left = a + m[:, None] * size + k[None, :]
    right = b + k[:, None] * size + n[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, size // BLOCK_K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BLOCK_K
        right += BLOCK_K * size
    tl.store(c + m[:, None] * size + n[None, :], total.to(c.dtype.element_ty))


def product(a, b):
    size = a.shape[0]
    c = torch.empty_like(a)
    square[lambda meta: ((size // meta["BLOCK_M"]) * (size // meta["BLOCK_N"]),)](a, b, c, size)
    return c
