# SPDX-License-Identifier: MIT
"""A running `hearth-filter accept`: one JSON object in, one out. Standard library only."""
import json
import os
import subprocess

from hearth_server import FILTER


class Accept:
    def __init__(self, model):
        self.process = subprocess.Popen([FILTER, "accept", "--model", model], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, env=dict(os.environ))

    def raw(self, line):
        """The answer to one line of bytes."""
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer.endswith(b"\n"), f"no answer to {line[:200]!r}"
        return json.loads(answer)

    def ask(self, **request):
        return self.raw(json.dumps(request).encode())

    def close(self):
        """The exit status."""
        self.process.stdin.close()
        status = self.process.wait(timeout=60)
        self.process.stdout.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        assert self.close() == 0, "the filter did not end well"
