"""What is installed: documentation with examples that hold, types, a notebook, and what is there without the compiled module."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LIMIT_S, Fresh

HERE = Path(__file__).resolve().parent.parent
NOTEBOOK = HERE / "notebooks/four_times_the_budget.ipynb"


def test_examples_of_the_documentation(fresh: Fresh) -> None:
    out = fresh("""
        import doctest
        from loam import _arrays, _connect, _size, _stats
        loam.connect("32M", lenders=LENDER, durability="none")
        for module in (_arrays, _connect, _size, _stats):
            result = doctest.testmod(module, extraglobs={"loam": loam, "np": np})
            assert result.failed == 0
            print(module.__name__, result.attempted)
    """)
    attempted = dict(line.split() for line in out.splitlines())
    assert int(attempted["loam._arrays"]) >= 4 and int(attempted["loam._size"]) >= 2, out


def test_everything_is_documented(fresh: Fresh) -> None:
    fresh("""
        for name in loam.__all__:
            assert getattr(loam, name).__doc__, name
    """)


def test_types() -> None:
    pytest.importorskip("mypy")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir=/dev/null"], cwd=HERE, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_without_the_compiled_module() -> None:
    """From the sources, by PYTHONPATH: `part` alone, without NumPy."""
    code = """
import loam, sys
loam.part(5)
assert "numpy" not in sys.modules
try:
    loam.connect
except ImportError as error:
    assert "pip install" in str(error), error
else:
    raise AssertionError("it is not built here")
"""
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(HERE)}, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert ended.returncode == 0, ended.stderr


def test_the_notebook(fresh: Fresh) -> None:
    """By Jupyter; where that is not installed its cells of code, one after the other."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    if importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"):
        code = f"""
            import nbformat, nbclient
            notebook = nbformat.read(r"{NOTEBOOK}", as_version=4)
            nbformat.validate(notebook)
            nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
            for cell in notebook.cells:
                for output in cell.get("outputs", []):
                    print(output.get("text", ""))
        """
    out = fresh(code, LENDERS=fresh.lender)
    assert "bit by bit the same" in out, out
