"""Every claim of speed and memory, measured side by side in one run: `python -m benchmarks`, or `make bench`."""
