"""What is loaded at the server's start, and what a page's run is spared for it."""

import subprocess
import sys

CODE = """
import gc, sys
from tinput.ui.warm import warm_up
warm_up()
assert {"torch", "transformers", "plotly.graph_objects"} <= set(sys.modules)
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_what_was_imported_is_no_longer_walked_by_the_garbage_collector():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=120)
    frozen, walked = map(int, done.stdout.split()[-2:])
    assert frozen > 100_000
    assert walked < frozen / 20
    assert "did not finish" not in done.stderr
