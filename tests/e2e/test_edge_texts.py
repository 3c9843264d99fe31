#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Edge texts in every text field of every route at once, with every kind of model: see edge_texts_run.py."""
from edge_texts_run import run
from hearth_server import run_cases


def test_edge_texts():
    assert run(seconds=8, seed=1) == 0


if __name__ == "__main__":
    run_cases(globals())
