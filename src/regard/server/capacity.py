"""What the runs of a server share: threads, and how much each of them may take in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from regard.system import usable_cores


class Capacity:
    """Threads that start when they are first needed, and limits."""

    def __init__(self, threads: int, batch: int, queue: int):
        """`threads`: batches that CTranslate2 decodes at once, 0 for one a core; `batch`: sentences decoded together,
        at most; `queue`: sentences that may wait for a run.
        """
        self.threads, self.batch, self.queue = threads or usable_cores(), batch, queue
        self.decoding = ThreadPoolExecutor(self.threads, thread_name_prefix="decode")
        """For CTranslate2, which computes on one core for each batch."""
        # Half of the cores for one operation, so that looking inside a model does not hold up those who translate.
        calm = partial(_limit_torch, max(1, self.threads // 2))
        self.torch = ThreadPoolExecutor(1, thread_name_prefix="torch", initializer=calm)
        """The one thread for torch."""

    def close(self) -> None:
        """End the threads, once what they were given is done."""
        for pool in (self.decoding, self.torch):
            pool.shutdown(wait=False)


def _limit_torch(threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
