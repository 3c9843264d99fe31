#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The chat page in Chromium, the short way: by keyboard alone, Esc, a reload, code, and axe-core once. Everything else:
page_run.py."""
import sys

from hearth_server import Hearth
from page_run import browser, run_in_browser

CASES = ("keyboardOnly", "textGrowsAndEscapeStops", "reloadKeepsAll", "headersAndRequests", "codeSideAndExamples",
         "axeInOneLook")

browser()
with Hearth("--parallel", "4", "--temperature", "0") as server:
    sys.exit(run_in_browser(server, CASES))
