"""The peak of the machine: an endless loop of large float32 matrix products, counted in a file.

python matmul_loop.py LOG
"""

from __future__ import annotations

import sys

import torch

SIZE = 2048
a, b, c = (torch.randn(SIZE, SIZE) for _ in range(3))
with open(sys.argv[1], "w") as log:
    while True:
        torch.mm(a, b, out=c)
        log.write(f"{2 * SIZE**3}\n")
        log.flush()
