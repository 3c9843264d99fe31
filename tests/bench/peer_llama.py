#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""llama.cpp's library from its published npm package, driven like its own llama-bench: the peer of
compare_llama.py, which starts it as one process a measurement.

    peer_llama.py LIBRARIES speed GGUF OPTIONS     one JSON object a case, as `hearth bench --json`
    peer_llama.py LIBRARIES quantize GGUF q8_0|q4_0 OUT
    peer_llama.py LIBRARIES logits GGUF ID,ID,...  raw f32 rows of every position to stdout
    peer_llama.py LIBRARIES turn GGUF --kind save|restore|compute --file FILE --old N --new N
                                                   a prompt of OLD and NEW tokens: computed, or its old part saved to
                                                   and restored from a file, as its server's slots are

LIBRARIES is the folder with libllama.*.so. The structures below are those of llama.cpp v0.5.0, which
@node-llama-cpp/linux-x64 3.22.1 contains; another version is noticed by its defaults. Standard library only.
"""
import argparse
import ctypes as C
import glob
import json
import os
import random
import sys
import time

F16, BF16, Q8_0 = 1, 30, 8
FILE_TYPES = {"q8_0": 7, "q4_0": 2, "q4_1": 3, "q4_k_m": 15, "q5_k_m": 17, "iq4_nl": 25}
KV_TYPES = {"f16": F16, "bf16": BF16, "q8_0": Q8_0}


class ModelParams(C.Structure):
    _fields_ = [("devices", C.c_void_p), ("tensor_buft_overrides", C.c_void_p), ("n_gpu_layers", C.c_int32),
                ("split_mode", C.c_int), ("load_mode", C.c_int), ("lazy_mode", C.c_int),
                ("main_gpu", C.c_int32), ("tensor_split", C.c_void_p), ("progress_callback", C.c_void_p),
                ("progress_data", C.c_void_p), ("kv_overrides", C.c_void_p), ("vocab_only", C.c_bool),
                ("check_tensors", C.c_bool), ("use_extra_bufts", C.c_bool), ("no_host", C.c_bool),
                ("no_alloc", C.c_bool), ("load_mtp", C.c_bool)]


class ContextParams(C.Structure):
    _fields_ = [("n_ctx", C.c_uint32), ("n_batch", C.c_uint32), ("n_ubatch", C.c_uint32),
                ("n_seq_max", C.c_uint32), ("n_rs_seq", C.c_uint32), ("n_outputs_max", C.c_uint32),
                ("n_outputs_max_per_seq", C.c_uint32), ("n_threads", C.c_int32),
                ("n_threads_batch", C.c_int32), ("ctx_type", C.c_int), ("rope_scaling_type", C.c_int),
                ("pooling_type", C.c_int), ("attention_type", C.c_int), ("flash_attn_type", C.c_int),
                ("rope_freq_base", C.c_float), ("rope_freq_scale", C.c_float),
                ("yarn_ext_factor", C.c_float), ("yarn_attn_factor", C.c_float),
                ("yarn_beta_fast", C.c_float), ("yarn_beta_slow", C.c_float), ("yarn_orig_ctx", C.c_uint32),
                ("defrag_thold", C.c_float), ("cb_eval", C.c_void_p), ("cb_eval_data", C.c_void_p),
                ("type_k", C.c_int), ("type_v", C.c_int), ("abort_callback", C.c_void_p),
                ("abort_data", C.c_void_p), ("embeddings", C.c_bool), ("offload_kqv", C.c_bool),
                ("no_perf", C.c_bool), ("op_offload", C.c_bool), ("swa_full", C.c_bool),
                ("kv_unified", C.c_bool), ("samplers", C.c_void_p), ("n_samplers", C.c_size_t),
                ("ctx_other", C.c_void_p)]


class QuantizeParams(C.Structure):
    _fields_ = [("nthread", C.c_int32), ("ftype", C.c_int), ("output_tensor_type", C.c_int),
                ("token_embedding_type", C.c_int), ("allow_requantize", C.c_bool),
                ("quantize_output_tensor", C.c_bool), ("only_copy", C.c_bool), ("pure", C.c_bool),
                ("keep_split", C.c_bool), ("dry_run", C.c_bool), ("imatrix", C.c_void_p),
                ("kv_overrides", C.c_void_p), ("tt_overrides", C.c_void_p), ("prune_layers", C.c_void_p),
                ("max_buf_size", C.c_size_t)]


class Batch(C.Structure):
    _fields_ = [("n_tokens", C.c_int32), ("token", C.POINTER(C.c_int32)), ("embd", C.c_void_p),
                ("pos", C.POINTER(C.c_int32)), ("n_seq_id", C.POINTER(C.c_int32)),
                ("seq_id", C.POINTER(C.POINTER(C.c_int32))), ("logits", C.POINTER(C.c_int8))]


class PoolParams(C.Structure):
    _fields_ = [("cpumask", C.c_bool * 512), ("n_threads", C.c_int), ("prio", C.c_int),
                ("poll", C.c_uint32), ("strict_cpu", C.c_bool), ("paused", C.c_bool)]


LOG = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)


DEBUG = 1


def log_line(level, text, _data):
    if level != DEBUG:
        sys.stderr.write(text.decode("utf-8", "replace"))


def load(folder):
    """(llama, ggml) with the results' types declared."""
    def one(pattern):
        found = sorted(glob.glob(os.path.join(folder, pattern)))
        if not found:
            sys.exit(f"no {pattern} in {folder}")
        return C.CDLL(found[0], mode=C.RTLD_GLOBAL)
    base, ggml = one("libggml-base*.so*"), one("libggml.*so*")
    llama = one("libllama.*so*")
    llama.log = LOG(log_line)
    llama.llama_log_set(llama.log, None)
    ggml.ggml_backend_load_all_from_path(os.fsencode(folder))
    for name, result in (("llama_model_default_params", ModelParams),
                         ("llama_context_default_params", ContextParams),
                         ("llama_model_quantize_default_params", QuantizeParams),
                         ("llama_model_load_from_file", C.c_void_p), ("llama_init_from_model", C.c_void_p),
                         ("llama_get_memory", C.c_void_p), ("llama_batch_init", Batch),
                         ("llama_print_system_info", C.c_char_p),
                         ("llama_get_logits_ith", C.POINTER(C.c_float)),
                         ("llama_model_get_vocab", C.c_void_p)):
        getattr(llama, name).restype = result
    base.ggml_backend_dev_by_type = getattr(ggml, "ggml_backend_dev_by_type")
    check_layout(llama)
    return llama, ggml, base


def check_layout(llama):
    """The structures above are right for this library if its defaults land where they should."""
    c, m = llama.llama_context_default_params(), llama.llama_model_default_params()
    q = llama.llama_model_quantize_default_params()
    if not (c.n_ctx == 512 and c.n_batch == 2048 and c.flash_attn_type == -1 and c.type_k == F16
            and c.type_v == F16 and c.offload_kqv and not c.samplers and not c.ctx_other
            and m.use_extra_bufts and m.load_mode == -1 and not m.kv_overrides and not q.imatrix):
        sys.exit("this llama.cpp lays its structures out in another way than v0.5.0")


class Peer:
    """A model and one context. threads, flash attention on, a pool of threads of its own."""

    def __init__(self, a, n_ctx, n_seq):
        self.llama, self.ggml, self.base = load(a.libraries)
        mp = self.llama.llama_model_default_params()
        mp.use_extra_bufts = a.repack
        mp.load_mode = 1 if a.mmap else 0
        self.model = C.c_void_p(self.llama.llama_model_load_from_file(os.fsencode(a.gguf), mp))
        if not self.model:
            sys.exit(f"{a.gguf} could not be loaded")
        cp = self.llama.llama_context_default_params()
        cp.n_ctx, cp.n_seq_max, cp.n_batch, cp.n_ubatch = n_ctx * n_seq, n_seq, 2048, a.ubatch
        cp.n_threads = cp.n_threads_batch = a.threads
        cp.flash_attn_type, cp.kv_unified = a.flash, False
        cp.type_k = cp.type_v = KV_TYPES[a.kv]
        self.context = C.c_void_p(self.llama.llama_init_from_model(self.model, cp))
        if not self.context:
            sys.exit("no context")
        if a.poll >= 0:
            self.attach_pool(a)
        self.batch = self.llama.llama_batch_init(max(2048, n_seq), 0, 1)
        vocab = C.c_void_p(self.llama.llama_model_get_vocab(self.model))
        self.n_vocab = self.llama.llama_vocab_n_tokens(vocab)
        sys.stderr.write("system_info: " + self.llama.llama_print_system_info().decode() + "\n")
        # From here on lines of the log go to a C function that ignores them: none of ours may slow the peer.
        self.llama.llama_log_set(C.cast(C.CDLL(None).abs, C.c_void_p), None)

    def attach_pool(self, a):
        """The threads stay between graphs, as in llama-bench; without this each graph starts its own."""
        self.ggml.ggml_backend_dev_by_type.restype = C.c_void_p
        self.base.ggml_backend_dev_backend_reg.restype = C.c_void_p
        self.base.ggml_backend_reg_get_proc_address.restype = C.c_void_p
        device = C.c_void_p(self.ggml.ggml_backend_dev_by_type(0))
        reg = C.c_void_p(self.base.ggml_backend_dev_backend_reg(device))
        address = self.base.ggml_backend_reg_get_proc_address(reg, b"ggml_threadpool_new")
        params = PoolParams(n_threads=a.threads, poll=a.poll)
        pool = C.CFUNCTYPE(C.c_void_p, C.POINTER(PoolParams))(address)(C.byref(params))
        self.llama.llama_attach_threadpool(self.context, C.c_void_p(pool), C.c_void_p(pool))

    def clear(self):
        self.llama.llama_memory_clear(C.c_void_p(self.llama.llama_get_memory(self.context)), False)

    def step(self, rows):
        """One llama_decode of rows (token, position, sequence, wants logits)."""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, pos, seq, wanted) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, pos, 1, wanted
            b.seq_id[i][0] = seq
        if self.llama.llama_decode(self.context, b):
            sys.exit("llama_decode failed")
        self.llama.llama_synchronize(self.context)


def random_ids(peer, n, seed=7):
    rng = random.Random(seed)
    return [rng.randrange(peer.n_vocab) for _ in range(n)]


def prompt(peer, ids, seq=0):
    """The whole prompt, in calls of at most 2048 tokens; logits of the last token only."""
    for at in range(0, len(ids), 2048):
        part = ids[at:at + 2048]
        peer.step([(t, at + i, seq, at + i == len(ids) - 1) for i, t in enumerate(part)])


def measure_prefill(peer, n):
    ids = random_ids(peer, n)
    peer.clear()
    t0 = time.perf_counter()
    prompt(peer, ids)
    return n / (time.perf_counter() - t0)


def measure_decode(peer, n, batch, context):
    """Random tokens, as llama-bench takes them: no sampling is in the time."""
    peer.clear()
    for seq in range(batch):
        prompt(peer, random_ids(peer, context + 1, seq), seq)
    tokens = random_ids(peer, n * batch)
    t0 = time.perf_counter()
    for i in range(n):
        peer.step([(tokens[i * batch + s], context + 1 + i, s, 1) for s in range(batch)])
    return n * batch / (time.perf_counter() - t0)


def report(test, tokens, batch, context, a, speeds):
    speeds = sorted(speeds)
    print(json.dumps({"test": test, "tokens": tokens, "batch": batch, "context": context,
                      "threads": a.threads, "tok_s": round(speeds[len(speeds) // 2], 2),
                      "min": round(speeds[0], 2), "max": round(speeds[-1], 2)}), flush=True)


def numbers(text):
    return [int(x) for x in text.split(",") if x]


def cmd_speed(a):
    longest = max([*a.prefill, *(c + a.decode + 1 for c in a.context)])
    peer = Peer(a, longest + 8 + -(longest + 8) % 256, max(a.batch))
    for n in a.prefill:
        report("prefill", n, 1, 0, a, [measure_prefill(peer, n) for _ in range(a.reps + 1)][1:])
    for context in a.context if a.decode else []:
        for batch in a.batch:
            speeds = [measure_decode(peer, a.decode, batch, context) for _ in range(a.reps + 1)][1:]
            report("decode", a.decode, batch, context, a, speeds)


def cmd_quantize(a):
    llama, _, _ = load(a.libraries)
    q = llama.llama_model_quantize_default_params()
    q.ftype, q.nthread = FILE_TYPES[a.type], a.threads
    if llama.llama_model_quantize(os.fsencode(a.gguf), os.fsencode(a.out), C.byref(q)):
        sys.exit(f"{a.gguf} could not be quantized")


def cmd_logits(a):
    peer = Peer(a, 256, 1)
    peer.step([(t, i, 0, 1) for i, t in enumerate(a.ids)])
    for i in range(len(a.ids)):
        row = peer.llama.llama_get_logits_ith(peer.context, i)
        sys.stdout.buffer.write(C.string_at(row, 4 * peer.n_vocab))


def cmd_turn(a):
    peer = Peer(a, a.old + a.new + 8 + -(a.old + a.new + 8) % 256, 1)
    ids = random_ids(peer, a.old + a.new)
    llama, path = peer.llama, os.fsencode(a.file)
    llama.llama_state_seq_save_file.restype = llama.llama_state_seq_load_file.restype = C.c_size_t
    llama.llama_state_seq_save_file.argtypes = [C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_size_t]
    llama.llama_state_seq_load_file.argtypes = [C.c_void_p, C.c_char_p, C.c_int32, C.c_void_p, C.c_size_t, C.c_void_p]
    tokens, n = (C.c_int32 * a.old)(*ids[:a.old]), C.c_size_t()
    result, t0 = {"kind": a.kind}, time.perf_counter()
    if a.kind == "restore":
        if not llama.llama_state_seq_load_file(peer.context, path, 0, tokens, a.old, C.byref(n)) or list(tokens) != ids[:n.value]:
            sys.exit("not restored")
        result["restore_s"] = round(time.perf_counter() - t0, 3)
        peer.step([(t, a.old + i, 0, i == a.new - 1) for i, t in enumerate(ids[a.old:])])
    else:
        prompt(peer, ids[:a.old] if a.kind == "save" else ids)
    result["first_token_s"] = round(time.perf_counter() - t0, 3)
    if a.kind == "save":
        t0 = time.perf_counter()
        result["bytes"] = llama.llama_state_seq_save_file(peer.context, path, 0, tokens, a.old)
        result["save_s"] = round(time.perf_counter() - t0, 3)
    print(json.dumps(result))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("libraries")
    commands = p.add_subparsers(required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("gguf")
    shared.add_argument("--threads", type=int, default=2)
    shared.add_argument("--flash", type=int, default=1, help="flash attention: 1 on, 0 off, -1 auto")
    shared.add_argument("--kv", choices=sorted(KV_TYPES), default="f16")
    shared.add_argument("--ubatch", type=int, default=512)
    shared.add_argument("--poll", type=int, default=50, help="of the thread pool; -1: no pool is attached")
    shared.add_argument("--no-repack", dest="repack", action="store_false")
    shared.add_argument("--mmap", action="store_true", help="weights mapped rather than read")
    s = commands.add_parser("speed", parents=[shared])
    s.add_argument("--prefill", type=numbers, default=[512])
    s.add_argument("--decode", type=int, default=128)
    s.add_argument("--batch", type=numbers, default=[1])
    s.add_argument("--context", type=numbers, default=[0])
    s.add_argument("--reps", type=int, default=5)
    s.set_defaults(run=cmd_speed)
    s = commands.add_parser("quantize", parents=[shared])
    s.add_argument("type", choices=sorted(FILE_TYPES))
    s.add_argument("out")
    s.set_defaults(run=cmd_quantize)
    s = commands.add_parser("logits", parents=[shared])
    s.add_argument("ids", type=numbers)
    s.set_defaults(run=cmd_logits)
    s = commands.add_parser("turn", parents=[shared])
    s.add_argument("--kind", choices=["save", "restore", "compute"], required=True)
    s.add_argument("--file", required=True)
    s.add_argument("--old", type=int, required=True)
    s.add_argument("--new", type=int, required=True)
    s.set_defaults(run=cmd_turn)
    a = p.parse_args()
    a.run(a)
    sys.stdout.flush()
    os._exit(0)  # the library's threads and buffers end with the process


if __name__ == "__main__":
    main()
