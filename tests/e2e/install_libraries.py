# SPDX-License-Identifier: MIT
"""Client libraries for the scripts that are run by hand, installed under build/libraries when they are missing."""
import filecmp
import os
import shutil
import subprocess
import sys

from hearth_server import ROOT

HERE = os.path.dirname(os.path.abspath(__file__))


def install(name, listing, command):
    """The folder of `name`, in which the command is run first if it was not for this listing."""
    folder = os.path.join(ROOT, "build", "libraries", name)
    wanted, done = os.path.join(HERE, listing), os.path.join(folder, listing + ".done")
    if not os.path.exists(done) or not filecmp.cmp(wanted, done, shallow=False):
        os.makedirs(folder, exist_ok=True)
        print(f"installing {listing} into {folder}", flush=True)
        command(folder, wanted)
        shutil.copy(wanted, done)
    return folder


def venv(name, requirements):
    """The folder of a virtual environment that has the requirements."""
    def make(folder, wanted):
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet",
                        "--disable-pip-version-check", "-r", wanted], check=True)
    return install(name, requirements, make)


def enter_venv(name, requirements):
    """Starts the script again with the interpreter of that environment."""
    if os.environ.get("HEARTH_IN_VENV") != name:
        python = os.path.join(venv(name, requirements), "bin", "python")
        os.environ["HEARTH_IN_VENV"] = name
        os.execv(python, [python, *sys.argv])


def node_modules(name, package):
    """The node_modules with the dependencies of a package.json."""
    def make(folder, wanted):
        shutil.copy(wanted, os.path.join(folder, "package.json"))
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--omit=dev"], cwd=folder, check=True)
    return os.path.join(install(name, package, make), "node_modules")
