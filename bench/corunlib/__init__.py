"""The parts of bench/corun.py. Python's standard library only."""
