"""python -m benchmarks [PART ...]: one table of ratios. Takes some minutes; nothing else should be running."""

import argparse
import os
import platform
import sys

from benchmarks import census, compare, hub, models, pages, skeletons
from benchmarks.table import table

PARTS = {
    "census": census.rows,
    "compare": compare.rows,
    "hub": hub.rows,
    "models": models.rows,
    "pages": pages.rows,
    "skeletons": skeletons.rows,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ratios, measured side by side.")
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)} (default: all)")
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    rows = []
    for name in chosen:
        for row in PARTS[name]():
            print(f"  measured: {row.what}", file=sys.stderr, flush=True)
            rows.append(row)
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    print(table(rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
