#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Starts the demo server and runs the official Node clients (clients.mjs) against it."""
import os
import shutil
import subprocess
import sys

from hearth_server import SKIPPED, Hearth, roomy_folder
from scripted_model import loop_model

modules = os.environ.get("HEARTH_NODE_MODULES", "")
if not shutil.which("node") or not os.path.isdir(os.path.join(modules, "openai")):
    print("no node, or HEARTH_NODE_MODULES names no folder with its clients; tests/run.sh installs both")
    sys.exit(SKIPPED)
with roomy_folder() as batches, Hearth("--parallel", "8", "--batch-dir", batches) as server, loop_model() as model, Hearth("--model", model.dir) as loop:
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "clients.mjs")
    sys.exit(subprocess.run(["node", script, server.url, loop.url], check=False, timeout=240).returncode)
