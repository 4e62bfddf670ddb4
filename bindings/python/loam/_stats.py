"""What Loam says of itself."""

import json
from typing import Any, Dict

from . import _native

__all__ = ["stats"]


def stats() -> Dict[str, Any]:
    """Figures of this process, its forked children and its agent, until now.

    The last word of a key is its unit: sizes are in ``bytes``, times in ``us`` or ``s``; counts of faults are faults, of evictions base pages (4 KiB).

    Always there:

    - ``connected``: whether this process is served.
    - ``numpy``: what arrays of *this* process have had: ``allocations`` and ``allocated_bytes`` from the region in all, as they were asked for (one that
      is resized counts again); ``live_allocations`` and ``live_bytes``, the room in the region that they take now, in whole base pages;
      ``unserved`` and ``unserved_bytes``, for which the region had no room; ``min_alloc_bytes``.

    When connected, the object of ``loam status --json`` for this agent, every key of which ``docs/summary.md`` explains. Some of them:

    - ``local_limit_bytes``, ``local_bytes``, ``local_peak_bytes``: the budget, what is here now, and most of it at once. What the program had when it
      connected is part of each.
    - ``remote_bytes``: contents that are kept elsewhere now.
    - ``faults``: ``total``, and by how they were answered: ``zero``, ``rescued``, ``remote``, ``disk``, ``prefetched_hit``.
    - ``fault_latency_us``: ``p50``, ``p90``, ``p99``, ``max``.
    - ``bytes``: page contents from (``in``) and to (``out``) lenders, and ``disk_read``, ``disk_written``.
    - ``time_s``: how long no thread waited (``exec``), and for what they did otherwise.
    - ``region``: ``size_bytes``, ``peak_bytes``, ``full`` and others.
    - ``lenders``: a list, with ``addr``, ``bytes``, ``lost``.
    - ``warnings``: lines that a person should read.

    Asking takes the agent a fraction of a millisecond.

    Raises:
        Error: The agent does not answer within two seconds.

    >>> loam.stats()["numpy"]["min_alloc_bytes"]
    262144
    """
    connected = _native.is_connected()
    agent = json.loads(_native.statistics()) if connected else {}
    return {"connected": connected, "numpy": _native.counts(), **agent}
