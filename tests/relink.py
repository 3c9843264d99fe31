# SPDX-License-Identifier: MIT
"""Programs of a build folder again, with some of their sources compiled another way.

Compiles only those sources, with the build's own commands, and links each object ahead of the libraries, so that
the linker takes it and not the member of the same name. Paths are relative to the build folder.
"""
import json
import os
import shlex
import subprocess


class Build:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.compiles = {}
        database = subprocess.run(["ninja", "-C", self.folder, "-t", "compdb"], stdout=subprocess.PIPE, check=True).stdout
        for entry in json.loads(database):
            words = shlex.split(entry["command"])
            if "-c" in words:
                self.compiles.setdefault(os.path.realpath(os.path.join(self.folder, entry["file"])), words)

    def run(self, command, timeout=300):
        return subprocess.run(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, check=False)

    def compile(self, source, ret_object, flags=(), text_of=None):
        """Compiles the product's file source, or the file text_of in its place. The compiler's answer."""
        words = list(self.compiles[os.path.realpath(source)])
        for option in ("-MF", "-MQ"):
            at = words.index(option)
            del words[at:at + 2]
        words.remove("-MD")
        words[words.index("-o") + 1] = ret_object
        words[words.index("-c") + 1] = text_of or source
        return self.run(words + list(flags))

    def link(self, program, objects, ret_program, flags=()):
        """Links the build's program with these objects first. The linker's answer."""
        commands = subprocess.run(["ninja", "-C", self.folder, "-t", "commands", program], stdout=subprocess.PIPE, check=True).stdout
        words = shlex.split(commands.decode().splitlines()[-1])
        at = words.index("-o")
        return self.run(words[:at] + ["-o", ret_program, *objects] + words[at + 2:] + list(flags))
