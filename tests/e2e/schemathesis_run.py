#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: schemathesis (a published package) draws requests from /openapi.json and sends them.

    schemathesis_run.py [--seconds 300] [--examples 50] [--seed 1] [--program schemathesis]

No answer may be a server error, have a status or content type that the document does not name, or a body
that its schema does not allow.
"""
import argparse
import subprocess
import sys

from hearth_server import Hearth

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=int, default=300)
    p.add_argument("--examples", type=int, default=50)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--program", default="schemathesis")
    a = p.parse_args()
    # Bodies that never come (a length without bytes) need not take the minute they may.
    with Hearth("--body-timeout-ms", "3000", "--header-timeout-ms", "3000") as h:
        status = subprocess.run([
            a.program, "run", h.url + "/openapi.json", "--phases", "examples,coverage,fuzzing",
            "--max-examples", str(a.examples), "--max-time", str(a.seconds), "--seed", str(a.seed),
            "--request-timeout", "60", "--checks", CHECKS, "--suppress-health-check", "all"],
            check=False).returncode
        h.log.clear()
    sys.exit(status)


if __name__ == "__main__":
    main()
