#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the demo's small sibling, the draft model of the tests: deploy/demo/train.py in another shape.

    train.py --steps 700 --checkpoint FILE; train.py --export --checkpoint FILE --out DIR

Its tokenizer is the demo's: copy tokenizer.json. The options are those of the demo's script, which says what it needs.
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../../deploy/demo"))
import train  # noqa: E402  (the demo's: this file runs as __main__)

train.CONFIG.update(hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1)

if __name__ == "__main__":
    train.main()
