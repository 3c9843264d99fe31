#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A small case of each kind in batches_run.py: kills at calls that change the disk, power losses, a disk that fails, a clock that
is wrong, hostile inputs and clients."""
import types

import batches_run
from hearth_server import run_cases

SMALL = types.SimpleNamespace(lines=16, kills=3, seed=1, step=29, first=1, last=1000, small=True)


def test_stopped_at_calls():
    batches_run.stops(SMALL)


def test_power_losses():
    batches_run.power(SMALL)


def test_killed_at_moments_of_chance():
    batches_run.kills(SMALL)


def test_faults_of_the_disk():
    batches_run.faults(SMALL)


def test_a_wrong_clock():
    batches_run.clock(SMALL)


def test_corrupted_answers():
    batches_run.corrupted(SMALL)


def test_hostile_inputs():
    batches_run.inputs(SMALL)


def test_many_models():
    batches_run.models(SMALL)


def test_cancels():
    batches_run.cancels(SMALL)


def test_many_batches():
    batches_run.many(SMALL)


if __name__ == "__main__":
    run_cases(globals())
