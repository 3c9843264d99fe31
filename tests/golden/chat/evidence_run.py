#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What published chat templates execute of tokenizer/template.

    tests/golden/chat/evidence_run.py [BUILD]      BUILD (build) has hearth-filter; needs gcov and HEARTH_REFERENCE

Links hearth-filter once more, with tokenizer/template compiled for gcov, renders each template of goldens/templates and
goldens/chat/templates with each conversation of goldens/chat, with and without the start of an answer, and prints
the share of lines that ran and each function that no template entered. What stands in that list and is no
error path is a candidate for leaving out. Writes to BUILD/evidence.
"""
import collections
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.abspath(__file__)) + "/../../.."
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../..")

from relink import Build  # noqa: E402

REFERENCE = os.environ.get("HEARTH_REFERENCE")


def instrumented(build, out):
    """The program hearth-filter that counts the lines of tokenizer/template; the objects' names"""
    objects = []
    for source in sorted(glob.glob(os.path.join(ROOT, "tokenizer/template/*.c"))):
        objects.append(os.path.join(out, os.path.basename(source)[:-2] + ".o"))
        done = build.compile(os.path.realpath(source), objects[-1], ["-O0", "-U_FORTIFY_SOURCE", "--coverage"])
        if done.returncode:
            sys.exit(done.stdout.decode())
    done = build.link("tests/hearth-filter", objects, os.path.join(out, "hearth-filter"), ["--coverage"])
    if done.returncode:
        sys.exit(done.stdout.decode())
    return os.path.join(out, "hearth-filter"), objects


def requests():
    with open(f"{REFERENCE}/goldens/chat/scenarios.jsonl", encoding="utf-8") as f:
        scenarios = [json.loads(line) for line in f]
    return "".join(json.dumps({k: s[k] for k in ("messages", "tools", "kwargs")} | {"add_generation_prompt": start}) + "\n"
                   for s in scenarios for start in (False, True))


def render_all(program):
    """Renders every template; the numbers of templates, of renders, of texts and of errors"""
    with open(f"{REFERENCE}/goldens/chat/variables.json", encoding="utf-8") as f:
        settings = json.load(f)
    lines = requests()
    counts = collections.Counter()
    for path in sorted(glob.glob(f"{REFERENCE}/goldens/templates/*.jinja") + glob.glob(f"{REFERENCE}/goldens/chat/templates/*.jinja")):
        name = os.path.basename(path)[:-len(".jinja")]
        with tempfile.TemporaryDirectory() as model:
            shutil.copyfile(path, os.path.join(model, "chat_template.jinja"))
            with open(os.path.join(model, "tokenizer_config.json"), "w", encoding="utf-8") as f:
                json.dump(settings["variables"].get(name, {}), f)
            done = subprocess.run([program, "render", "--model", model], input=lines.encode(), timeout=300,
                                  env={**os.environ, "HEARTH_NOW": settings["now"]},
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        answers = [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]]
        counts.update(templates=1, renders=len(answers), texts=sum("text" in a for a in answers),
                      errors=sum("error" in a for a in answers))
    return counts


def counted(objects):
    """{file: {line: executions}}, {(file, function): [executions, lines]} of tokenizer/template"""
    lines = collections.defaultdict(collections.Counter)
    functions = {}
    for name in objects:
        done = subprocess.run(["gcov", "--json-format", "--stdout", name], cwd=os.path.dirname(name), stdout=subprocess.PIPE, check=True)
        report = json.loads(done.stdout)
        for file in report["files"]:
            path = os.path.realpath(os.path.join(report["current_working_directory"], file["file"]))
            path = os.path.relpath(path, os.path.realpath(ROOT))
            if not path.startswith("tokenizer/template/"):
                continue
            for line in file["lines"]:
                lines[path][line["line_number"]] += line["count"]
            for f in file["functions"]:
                entry = functions.setdefault((path, f["name"]), [0, f["end_line"] - f["start_line"] + 1])
                entry[0] += f["execution_count"]
    return lines, functions


def main():
    if not REFERENCE:
        print("HEARTH_REFERENCE is not set")
        return 77
    build = Build(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build"))
    out = os.path.join(build.folder, "evidence")
    shutil.rmtree(out, ignore_errors=True)
    os.mkdir(out)
    program, objects = instrumented(build, out)
    counts = render_all(program)
    lines, functions = counted(objects)

    for path in sorted(lines):
        ran = sum(n > 0 for n in lines[path].values())
        print(f"{path:42} {ran:5} of {len(lines[path]):5} lines  {100 * ran / len(lines[path]):5.1f} %")
    print("\nentered by no template:")
    idle = sorted((path, name, size) for (path, name), (n, size) in functions.items() if n == 0)
    for path, name, size in idle:
        print(f"  {path:40} {name} ({size} lines)")
    ran = sum(n > 0 for of_file in lines.values() for n in of_file.values())
    all_lines = sum(map(len, lines.values()))
    print(f"\n{counts['templates']} templates, {counts['renders']} renders: {counts['texts']} texts, {counts['errors']} errors")
    print(f"{len(idle)} of {len(functions)} functions not entered, {sum(size for _, _, size in idle)} lines")
    print(f"executed: {ran} of {all_lines} lines, {100 * ran / all_lines:.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
