#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hearth and llama.cpp on the same random weights, in turns, one process at a time.

    compare_llama.py [--hearth build/hearth] [--work build/compare] [--shape smollm2-135m]
                     [--formats bf16,q8_0,q4_0] [--threads 1,2] [--prefill 128,512,2048] [--decode 128]
                     [--batch 1] [--rounds 5] [--json FILE]
    compare_llama.py --file FILE.gguf ...       both engines read that file
    compare_llama.py --same-files --formats q4_0,q4_k_m ...    both read what the peer's quantizer makes
    compare_llama.py --tune         the peer alone, with each of its settings, to find its best
    compare_llama.py --right 80 [--draft-shape smollm2-135m]   decoding of one stream alone, without drafts and with
                                    those of a model of that shape, or of the twin; bench_drafts makes 80 % of them right
    compare_llama.py --same         only checks that both engines compute the same model

The peer is the prebuilt library of the npm package @node-llama-cpp/linux-x64, fetched with npm into WORK at
the first run; the model (a shape of make_model.py) is written there too, once as a Hugging Face directory and
once as GGUF, whose 8- and 4-bit forms the peer's own quantizer makes; Hearth quantises the directory itself, but for
--same-files and formats that it has as files only (q4_1, q4_k_m, q5_k_m). Every round runs the peer, then Hearth; a
ratio is the median of the ratios of the rounds. Beside decode stands how fast Hearth reads its weights and how
fast the same threads read memory in the same process. Peer settings: flash attention on, KV in
f16, weights repacked, its own pool of threads as in llama-bench; --peer-options changes them.
Standard library only.
"""
import argparse
import json
import os
import platform
import shlex
import statistics
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = "@node-llama-cpp/linux-x64@3.22.1"
LIBRARIES = "node_modules/@node-llama-cpp/linux-x64/bins/linux-x64"
NUMERICS = {"bf16": "bf16", "q8_0": "int8", "q4_0": "int4"}
FORMATS = [*NUMERICS, "q4_1", "q4_k_m", "q5_k_m"]
# What --tune tries, each against the first.
SETTINGS = ["", "--poll 100", "--poll -1", "--mmap", "--no-repack", "--flash 0", "--kv bf16", "--ubatch 2048"]


def file_of(a, kind):
    return a.file or os.path.join(a.folder_of_model, kind + ".gguf")


def hearth_model(a, kind):
    """Options that name what Hearth reads."""
    if a.file or (a.same_files and kind != "bf16") or kind not in NUMERICS:
        return ["--model", file_of(a, kind)]
    return ["--model", a.model, "--numerics", NUMERICS[kind]]


def fetch_peer(a):
    folder = a.libraries or os.path.join(a.work, LIBRARIES)
    if not os.path.isdir(folder):
        subprocess.run(["npm", "install", "--prefix", a.work, "--no-audit", "--no-fund", "--ignore-scripts",
                        PACKAGE], check=True)
    return folder


def make_model(a):
    model, gguf = os.path.join(a.folder_of_model, "model"), os.path.join(a.folder_of_model, "bf16.gguf")
    if not os.path.exists(gguf):
        subprocess.run([sys.executable, os.path.join(HERE, "make_model.py"), model, "--shape", a.shape,
                        "--gguf", gguf + ".part"], check=True)
        os.rename(gguf + ".part", gguf)
    for kind in a.formats:
        out = file_of(a, kind)
        if not os.path.exists(out):
            peer(a, ["quantize", gguf, kind, out + ".part"])
            os.rename(out + ".part", out)
    return model


def make_draft_model(a):
    folder = os.path.join(a.work, "draft-" + a.draft_shape)
    if not os.path.exists(os.path.join(folder, "model.safetensors")):
        subprocess.run([sys.executable, os.path.join(HERE, "make_model.py"), folder, "--shape", a.draft_shape], check=True)
    return folder


def peer(a, command, text=True):
    """(stdout, log) of one process of the peer."""
    p = subprocess.run([sys.executable, os.path.join(HERE, "peer_llama.py"), a.folder, *command], text=text,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        sys.exit(f"the peer failed: {p.stderr[-2000:]}")
    return p.stdout, p.stderr


def cases(text):
    """test, tokens, batch and context -> the case's object, of JSON lines."""
    rows = [json.loads(line) for line in text.splitlines()]
    return {(r["test"], r["tokens"], r["batch"], r["context"]): r for r in rows}


def case_options(a, threads):
    return ["--threads", str(threads), "--prefill", a.prefill, "--decode", str(a.decode), "--batch", a.batch,
            "--context", a.context, "--reps", str(a.reps)]


def run_peer(a, kind, threads, options):
    out, log = peer(a, ["speed", file_of(a, kind), *case_options(a, threads), *shlex.split(options)])
    wanted = ("system_info", "flash_attn ", "loaded CPU")
    a.log = sorted({line.replace(a.folder + "/", "").strip() for line in log.splitlines()
                    if any(w in line for w in wanted)})
    return cases(out)


def run_hearth(a, kind, threads):
    command = [a.hearth, "bench", "--json", *hearth_model(a, kind), *case_options(a, threads), *shlex.split(a.hearth_options)]
    p = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        sys.exit(f"hearth failed: {p.stderr[-2000:]}")
    return cases(p.stdout)


def run_drafts(a, kind, threads):
    """One stream without and with drafts: the speeds that bench_drafts prints, after it has compared the answers."""
    command = [os.path.join(os.path.dirname(a.hearth), "tests", "bench", "bench_drafts"), "-k", "self", "-r", str(a.reps),
               "-f", NUMERICS[kind], "-t", str(threads), "-n", str(a.decode), "-p", "32", "-s", str(a.right),
               *(["-m", make_draft_model(a)] if a.draft_shape else []), a.model]
    p = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if p.returncode != 0:
        sys.exit(f"bench_drafts failed: {p.stderr[-2000:]}")
    speeds = next(line for line in p.stdout.splitlines() if line.startswith("self ")).split()[1:3]
    return {("decode", a.decode, name, 0): {"tok_s": float(speed)} for name, speed in zip(("no drafts", "drafts"), speeds)}


def name_of(case):
    test, tokens, batch, context = case
    if isinstance(batch, str):
        return f"decode {tokens}, {batch}"
    if test == "prefill":
        return f"prefill {tokens}"
    return f"decode {tokens}" + (f" x{batch}" if batch > 1 else "") + (f" at {context}" if context else "")


def spread(values):
    return f"{statistics.median(values):8.1f} ({min(values):.0f}-{max(values):.0f})"


def compare(a, kind, threads):
    """One table's rows: both engines in turns, --rounds times."""
    theirs, ours = [], []
    for _ in range(a.rounds):
        theirs.append(run_peer(a, kind, threads, a.peer_options))
        ours.append(run_hearth(a, kind, threads) if a.right is None else run_drafts(a, kind, threads))
        if a.right is not None:
            theirs[-1] = dict.fromkeys(ours[-1], theirs[-1]["decode", a.decode, 1, 0])
    rows = []
    for case in ours[0]:
        x, y = [r[case]["tok_s"] for r in theirs], [r[case]["tok_s"] for r in ours]
        ratios = [b / a for a, b in zip(x, y)]
        read = [r[case].get("weights_gb_s") for r in ours]
        memory = [r[case].get("memory_gb_s") for r in ours]
        rows.append({"format": kind, "threads": threads, "case": name_of(case), "llama_tok_s": x,
                     "hearth_tok_s": y, "ratio": round(statistics.median(ratios), 3),
                     "ratio_min": round(min(ratios), 3), "ratio_max": round(max(ratios), 3),
                     "weights_gb_s": read, "memory_gb_s": memory})
        print(f"| {kind} | {threads} | {name_of(case)} | {spread(x)} | {spread(y)} | "
              f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}-{max(ratios):.2f}) | "
              f"{share(read, memory)} |", flush=True)
    return rows


def share(read, memory):
    """Decode's reading of weights beside what memory gives."""
    if read[0] is None:
        return ""
    shares = [r / m for r, m in zip(read, memory)]
    return (f"{statistics.median(read):.1f} of {statistics.median(memory):.1f} GB/s, "
            f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})")


def tune(a):
    print("| format | threads | settings | case | tok/s | against the first |\n|---|---|---|---|---|---|")
    for kind in a.formats:
        for threads in a.threads:
            rounds = [[run_peer(a, kind, threads, s) for s in SETTINGS] for _ in range(a.rounds)]
            for case in rounds[0][0]:
                for i, s in enumerate(SETTINGS):
                    speeds = [r[i][case]["tok_s"] for r in rounds]
                    ratio = statistics.median(r[i][case]["tok_s"] / r[0][case]["tok_s"] for r in rounds)
                    print(f"| {kind} | {threads} | {s or 'as compared'} | {name_of(case)} | {spread(speeds)} | "
                          f"{ratio:.2f} |", flush=True)


def same_model(a):
    """Both engines' logits of 33 tokens, so that nothing is compared that is not the same model. Of a file each engine rounds
    activations in its own way."""
    ids = [(i * 7919 + 13) % 49152 for i in range(33)]
    raw, _ = peer(a, ["logits", file_of(a, "bf16"), ",".join(map(str, ids))], text=False)
    file = os.path.join(a.folder_of_model, "logits")
    subprocess.run([os.path.join(os.path.dirname(a.hearth), "tests", "hearth-filter"), "score",
                    *hearth_model(a, "bf16")], text=True, check=True,
                   input=json.dumps({"ids": ids, "logits": file}) + "\n", stdout=subprocess.DEVNULL)
    with open(file, "rb") as f:
        mine = f.read()
    if len(raw) != len(mine):
        sys.exit(f"{len(raw)} and {len(mine)} bytes of logits")
    n = len(raw) // 4
    x, y = struct.unpack(f"<{n}f", raw), struct.unpack(f"<{n}f", mine)
    worst, size = max(abs(p - q) for p, q in zip(x, y)), max(map(abs, x))
    vocab = n // len(ids)
    agree = sum(max(range(vocab), key=lambda j, o=i * vocab: x[o + j])
                == max(range(vocab), key=lambda j, o=i * vocab: y[o + j]) for i in range(len(ids)))
    print(f"same model: logits up to {size:.2f} differ by at most {worst:.3f}; best token the same at "
          f"{agree} of {len(ids)} positions")
    if worst > (0.2 if a.file else 0.05) * size:
        sys.exit("the two engines do not compute the same model")


def machine():
    names = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            names = {line.split(":")[1].strip() for line in f if line.startswith("model name")}
    except OSError:
        pass
    return {"cpu": ", ".join(sorted(names)) or platform.processor(), "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}"}


def commit():
    p = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return p.stdout.strip()


def listed(kind):
    return lambda text: [kind(x) for x in text.split(",") if x]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hearth", default=os.environ.get("HEARTH_BIN", os.path.join(ROOT, "build", "hearth")))
    p.add_argument("--work", default=os.path.join(ROOT, "build", "compare"))
    p.add_argument("--shape", default="smollm2-135m", help="a shape of make_model.py")
    p.add_argument("--libraries", help="folder of libllama.so; otherwise the npm package in WORK")
    p.add_argument("--formats", type=listed(str), default=list(NUMERICS), help=", ".join(FORMATS))
    p.add_argument("--file", help="a GGUF file that both read")
    p.add_argument("--same-files", action="store_true", help="Hearth reads the peer's files")
    p.add_argument("--threads", type=listed(int), default=[1, 2])
    p.add_argument("--prefill", default="128,512,2048")
    p.add_argument("--decode", type=int, default=128)
    p.add_argument("--batch", default="1")
    p.add_argument("--context", default="0")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--reps", type=int, default=1, help="measurements in each process, after one for warmth")
    p.add_argument("--peer-options", default="")
    p.add_argument("--hearth-options", default="")
    p.add_argument("--tune", action="store_true")
    p.add_argument("--right", type=float)
    p.add_argument("--draft-shape")
    p.add_argument("--same", action="store_true")
    p.add_argument("--json")
    a = p.parse_args()
    a.folder_of_model = a.work if a.shape == "smollm2-135m" else os.path.join(a.work, a.shape)
    if a.right is not None:
        a.prefill = ""
    if a.file:
        a.formats, a.shape = [os.path.basename(a.file)], None
        a.folder_of_model = a.work
    os.makedirs(a.folder_of_model, exist_ok=True)
    a.folder = fetch_peer(a)
    a.model = None if a.file else make_model(a)
    if a.tune:
        return tune(a)
    same_model(a)
    if a.same:
        return None
    print("| format | threads | case | llama.cpp tok/s | Hearth tok/s | ratio | weights read, of memory's speed |"
          "\n|---|---|---|---|---|---|---|")
    rows = [row for kind in a.formats for threads in a.threads for row in compare(a, kind, threads)]
    print("\n".join(["", *a.log]))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"kind": "compare_llama", "machine": machine(), "commit": commit(), "shape": a.shape,
                       "peer": PACKAGE, "peer_log": a.log, "command": shlex.join(sys.argv), "rows": rows}, f,
                      indent=1)
    return None


if __name__ == "__main__":
    sys.exit(main())
