"""Arrays in the idle memory of other machines.

Connect once, and let ordinary NumPy and pandas code allocate in a *region*, of which only so much stays on this machine::

    import loam, numpy as np

    loam.connect("4G", lenders=["10.0.0.7:7070"])
    with loam.allocator():
        a = np.ones(1 << 31)  # 16 GiB, of which at most four are here
        print(a.sum())

Under ``loam run`` a program is served already: :func:`connect` does nothing then, and the same code runs. :func:`part` is harmless without Loam.

Functions that borrow need the compiled module and NumPy 1.22 or newer: ``pip install ./bindings/python`` in Loam's sources. From a folder that is not
installed, :func:`part` is all there is.
"""

try:
    from ._native import part
except ModuleNotFoundError as _error:
    if _error.name != "loam._native":
        raise
    from ._part import part

    __all__ = ["part"]

    def __getattr__(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"loam.{name}: the compiled module is missing: pip install ./bindings/python")

else:
    from ._arrays import advise, allocator, array, empty, is_borrowed, prioritize, set_terms, zeros
    from ._connect import Error, InstallationError, NotConnectedError, RefusedError, connect, is_connected
    from ._stats import stats

    __all__ = [
        "Error",
        "InstallationError",
        "NotConnectedError",
        "RefusedError",
        "advise",
        "allocator",
        "array",
        "connect",
        "empty",
        "is_borrowed",
        "is_connected",
        "part",
        "prioritize",
        "set_terms",
        "stats",
        "zeros",
    ]
