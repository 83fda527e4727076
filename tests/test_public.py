"""The public names: all there, each from where pyright sees it, and `import tinput` quick."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tinput


def test_import_is_light():
    heavy = ("torch", "transformers", "plotly", "pandas", "numpy", "streamlit", "huggingface_hub")
    code = f"import sys, tinput; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_textbook_does_not_import_transformers():
    code = "import sys; sys.modules['transformers'] = None; import tinput; print(*tinput.SCHEMES)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {"alibi", "learned", "none", "relative", "relative_bias", "rope", "sinusoidal"} <= set(shown.split())


@pytest.mark.parametrize("name", tinput.__all__)
def test_a_public_name_is_what_its_home_has(name):
    value = getattr(tinput, name)
    assert name in dir(tinput)
    if hasattr(value, "__module__"):
        assert value.__module__.startswith("tinput.")


def test_what_pyright_sees_is_what_python_finds():
    source = Path(str(tinput.__file__)).read_text()
    [block] = [node for node in ast.parse(source).body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    names = {name: f"tinput.{module}" for name, module in tinput._MODULE_OF.items()}
    assert seen == names | dict.fromkeys(tinput._MODULES, "tinput")
    assert sorted(names) == sorted(tinput.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'open_modle'"):
        tinput.open_modle  # noqa: B018 - the look-up is the test


def test_modules_need_no_import_of_their_own():
    code = "import tinput; print(tinput.figures.heatmap.__module__, tinput.measure.cosine.__module__)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["tinput.figures.heat", "tinput.measure"]
