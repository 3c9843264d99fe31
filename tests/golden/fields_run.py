#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What mixtures of experts and Gemma 4 add to a model, each field changed after it was read: which golden notices.

    tests/golden/fields_run.py [--build BUILD] [FIELD ...]

Compiles config.c and fill.c of the product once more, with the changes below at the end of the config's reading and of
the load, links `hearth-filter` with them, and scores such models of tests/golden/models and of
$HEARTH_REFERENCE/goldens/mixtures with one change at a time, path `exact`. Prints a row per field: in how many models
it counts, how many are off by more than the tolerance, refused or crash, and the most that a logit is off. Exits 1 if
no golden notices a field. The tree stays as it is; the build folder (build) gets files under fields/.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("HEARTH_SOURCE_ROOT") or os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

from logits_check import largest_difference, read_floats, rounds_far  # noqa: E402
from relink import Build  # noqa: E402
from test_logits import recorded_rows  # noqa: E402

TOLERANCE = 3e-4
MAX_TOKENS = 64  # of a case

# field -> (where it counts, the change), of struct eng_hparams. Sizes that tensors must have are refused.
HPARAMS = {
    "n_experts": ("hp->n_experts", "hp->n_experts--"),
    "n_chosen": ("hp->n_experts", "hp->n_chosen += hp->n_chosen < hp->n_experts ? 1 : -1"),
    "d_expert": ("hp->n_experts", "hp->d_expert -= 4"),
    "d_shared": ("hp->d_shared", "hp->d_shared -= 4"),
    "layer_experts": ("hp->n_experts", "hp->layer_experts[hp->n_layers - 1] = false"),
    "route_sigmoid": ("hp->n_experts", "hp->route_sigmoid = !hp->route_sigmoid"),
    "route_bias": ("hp->route_bias", "hp->route_bias = false"),
    "route_renorm": ("hp->n_experts", "hp->route_renorm = !hp->route_renorm"),
    "route_floor": ("hp->route_renorm", "hp->route_floor += 0.9"),
    "route_eps": ("hp->route_renorm", "hp->route_eps += 0.01"),
    "route_scale": ("hp->n_experts", "hp->route_scale *= 1.01"),
    "shared_gate": ("hp->shared_gate", "hp->shared_gate = false"),
    "expert_norms": ("hp->expert_norms", "hp->expert_norms = false"),
    "full.d_head": ("hp->full.d_head", "hp->full.d_head += 2"),
    "full.n_kv_heads": ("hp->full.d_head", "hp->full.n_kv_heads *= 2"),
    "full.d_rot": ("hp->full.d_head", "hp->full.d_rot -= 2"),
    "rope.type": ("hp->full.d_head", "hp->rope.type = ENG_ROPE_DEFAULT"),
    "rope.d_head": ("hp->full.d_head", "hp->rope.d_head += 2"),
    "rope.theta": ("hp->full.d_head", "hp->rope.theta *= 1.01"),
    "rope.factor": ("hp->full.d_head", "hp->rope.factor *= 1.01"),
    "local_rope.theta": ("hp->full.d_head", "hp->local_rope.theta *= 1.01"),
    "d_rot": ("hp->full.d_head", "hp->d_rot -= 2"),
    "layer_window": ("hp->full.d_head", "for (int i = 0; i < hp->n_layers; i++) hp->layer_window[i] += hp->layer_window[i] > 0"),
    "n_shared": ("hp->full.d_head", "hp->n_shared++, hp->n_kv_layers--"),
    "shared_wide": ("hp->n_shared", "hp->shared_wide = !hp->shared_wide"),
    "v_norm": ("hp->v_norm", "hp->v_norm = false"),
    "keys_are_values": ("hp->full.d_head", "hp->keys_are_values = !hp->keys_are_values"),
    "d_ple": ("hp->d_ple", "hp->d_ple--"),
    "n_ple_rows": ("hp->d_ple", "hp->n_ple_rows--"),
    "soft_ids": ("hp->soft_ids[0] >= 0", "hp->soft_ids[0] = hp->soft_ids[1] = hp->soft_ids[2] = -1"),
    "pad_id": ("hp->soft_ids[0] >= 0", "hp->pad_id++"),
    "attn_scale": ("hp->full.d_head || hp->n_experts", "hp->attn_scale *= 1.01"),
    "embed_scale": ("hp->full.d_head || hp->n_experts", "hp->embed_scale *= 1.01"),
    "residual_scale": ("hp->n_experts && hp->residual_scale != 1", "hp->residual_scale *= 1.01"),
    "logit_softcap": ("hp->logit_softcap && hp->full.d_head", "hp->logit_softcap *= 1.01"),
    "act": ("hp->full.d_head", "hp->act = KERN_ACT_SILU"),
}

# The same of struct eng_model and its layers: vectors by a hundredth, matrices to zeros. l is each layer in turn.
MODEL = {
    "experts.select_bias": ("l->experts.select_bias", "times(l->experts.select_bias, hp->n_experts, 0)"),
    "experts.scale": ("l->experts.scale", "times(l->experts.scale, 1, 1.01f)"),  # of one: a norm follows
    "experts.router_norm": ("l->experts.router_norm", "times(l->experts.router_norm, hp->d_model, 1.01f)"),
    "experts.norm": ("l->experts.norm", "times(l->experts.norm, hp->d_model, 1.01f)"),
    "experts.dense_post": ("l->experts.dense_post", "times(l->experts.dense_post, hp->d_model, 1.01f)"),
    "experts.post": ("l->experts.post", "times(l->experts.post, hp->d_model, 1.01f)"),
    "experts.router": ("l->experts.router.panels", "zero(&l->experts.router)"),
    "experts.gate_up": ("l->experts.gate_up.panels", "zero(&l->experts.gate_up)"),
    "experts.down": ("l->experts.down.panels", "zero(&l->experts.down)"),
    "ple_gate": ("l->ple_gate.panels", "zero(&l->ple_gate)"),
    "ple_proj": ("l->ple_proj.panels", "zero(&l->ple_proj)"),
    "ple_post": ("l->ple_post", "times(l->ple_post, hp->d_model, 1.01f)"),
    "ple_norm": ("m->ple_norm && i == 0", "times(m->ple_norm, hp->d_ple, 1.01f)"),
    "ple_model": ("m->ple_model.panels", "zero(&m->ple_model)"),
    "ple_table": ("m->ple_table.panels", "zero(&m->ple_table)"),
    "scale": ("l->scale", "times(l->scale, 1, 1.01f)"),
    "place": ("eng_layer_shares(hp, i)", "l->place = first_of_its_type(m, i)"),
}

HOOK = """
#include <stdio.h>
#include "engine/model/model.h"

static bool is_field(const char *name)
{
    const char *asked = getenv("HEARTH_FIELD");
    return asked && strcmp(asked, name) == 0;
}

static void counts(void)
{
    fputs("FIELD COUNTS\\n", stderr);
}
"""

CHANGE_MODEL = """
static void times(const float *vector, int n, float by)
{
    for (int i = 0; i < n; i++)
        ((float *)vector)[i] *= by;
}

static void zero(struct eng_mat *mat)
{
    memset(mat->panels, 0, eng_mat_offset(mat, mat->n_panels));
}

static int first_of_its_type(const struct eng_model *m, int layer)
{
    int i = 0;
    while (m->layers[i].window != m->layers[layer].window)
        i++;
    return m->layers[i].place;
}

static void change_model(struct eng_model *m)
{
    const struct eng_hparams *hp = &m->hp;
    for (int i = 0; i < hp->n_layers; i++) {
        struct eng_layer *l = &m->layers[i];
        (void)l;
%s    }
}
"""


def statements(table):
    return "".join(f'        if (is_field("{name}") && ({where})) {{ counts(); {change}; }}\n' for name, (where, change) in table.items())


def with_hook(path, before_function, code, before_line, call):
    """The text of a file of the product with the code before a function and the call before a line of it."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        text = f.read()
    for mark in (before_function, before_line):
        assert text.count(mark) == 1, (path, mark)
    return text.replace(before_function, code + before_function).replace(before_line, call + before_line)


def build_filter(build):
    folder = os.path.join(build.folder, "fields")
    os.makedirs(folder, exist_ok=True)
    texts = {
        "engine/model/config.c": with_hook(
            "engine/model/config.c", "int eng_config_parse(",
            HOOK + "static void change_hparams(struct eng_hparams *hp)\n{\n" + statements(HPARAMS) + "}\n\n",
            "    json_decref((json_t *)c.json);\n", "    if (r->rc == 0) change_hparams(ret_hp);\n"),
        "engine/model/fill.c": with_hook(
            "engine/model/fill.c", "int eng_model_fill(", HOOK + CHANGE_MODEL % statements(MODEL),
            "    for (int i = 0; f.workers && i < f.n_threads; i++) {\n        free(f.workers[i].staging);",
            "    if (rc == 0) change_model(m);\n"),
    }
    objects = []
    for path, text in texts.items():
        copy = os.path.join(folder, os.path.basename(path))
        objects.append(copy[:-2] + ".o")
        with open(copy, "w", encoding="utf-8") as f:
            f.write(text)
        done = build.compile(os.path.join(ROOT, path), objects[-1], ["-w"], copy)
        assert done.returncode == 0, done.stdout.decode()
    program = os.path.join(folder, "hearth-filter")
    done = build.link("tests/hearth-filter", objects, program)
    assert done.returncode == 0, done.stdout.decode()
    return program


class Golden:
    """A model and its recorded rows."""

    def __init__(self, directory, answers):
        self.directory, self.name = directory, os.path.basename(directory)
        with open(os.path.join(answers, "golden.json"), encoding="utf-8") as f:
            golden = json.load(f)
        with open(os.path.join(directory, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        self.config = config.get("text_config", config)
        self.vocab = self.config["vocab_size"]
        self.cases = [c for c in golden["cases"] if len(c["ids"]) <= MAX_TOKENS]
        if os.path.exists(os.path.join(answers, "logits.f32")):
            rows = recorded_rows(answers, golden)
            self.rows = [rows[c["name"]] for c in self.cases]
        else:
            self.rows = [read_floats(os.path.join(answers, c.get("logits64_file", c["logits_file"]))) for c in self.cases]

    def off(self, program, field):
        """(whether the field counts here, the most that a logit is off, or how the model is refused)"""
        with tempfile.TemporaryDirectory() as tmp:
            files = [os.path.join(tmp, str(i)) for i in range(len(self.cases))]
            text = "".join(json.dumps({"ids": c["ids"], "logits": f}) + "\n" for c, f in zip(self.cases, files))
            p = subprocess.run([program, "score", "--model", self.directory, "--numerics", "exact"], input=text, text=True,
                               env={**os.environ, "HEARTH_FIELD": field}, capture_output=True, timeout=120, check=False)
            said = p.stderr.strip().split("\n")[-1]
            if p.returncode:
                return "FIELD COUNTS" in p.stderr, said if p.returncode > 0 else f"signal {-p.returncode}"
            worst = [largest_difference(read_floats(f), self.vocab, want, c["logits_rows"])
                     for f, want, c in zip(files, self.rows, self.cases)]
            return "FIELD COUNTS" in p.stderr, max(x if x == x else float("inf") for x in worst)


def goldens():
    places = [(os.path.join(HERE, "models"), os.path.join(HERE, "models"))]
    reference = os.environ.get("HEARTH_REFERENCE")
    if reference:
        places.append(tuple(os.path.join(reference, "goldens", "mixtures", part) for part in ("models", "logits")))
    for models, answers in places:
        for name in sorted(os.listdir(answers)):
            if not os.path.exists(os.path.join(answers, name, "golden.json")):
                continue
            model = Golden(os.path.join(models, name), os.path.join(answers, name))
            if rounds_far(model.config) and model.config["model_type"] != "gpt_oss":
                yield model


def judge(field, models, program):
    """Prints the field's row. Whether a golden notices."""
    found = {m.name: answer for m in models for counts, answer in [m.off(program, field)] if counts}
    refused = {n: a for n, a in found.items() if isinstance(a, str)}
    off = {n: a for n, a in found.items() if n not in refused}
    noticed = [n for n, a in off.items() if a > TOLERANCE]
    most = max(off, key=off.get, default="")
    print(f"{field}\tcounts in {len(found)}: {len(noticed)} off, {len(refused)} refused\t"
          f"{f'{most} {off[most]:.2g}' if off else ''}\t{next(iter(refused.items()), ('', ''))[1][:150]}", flush=True)
    for name in sorted(set(off) - set(noticed)):
        print(f"    {name} does not notice: {off[name]:.2g}", flush=True)
    return bool(noticed or refused)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("fields", nargs="*", metavar="FIELD")
    options = parser.parse_args()
    program, models = build_filter(Build(options.build)), list(goldens())
    wrong = {m.name: answer for m in models for _, answer in [m.off(program, "")] if not (isinstance(answer, float) and answer <= 5e-4)}
    assert not wrong, wrong
    unnoticed = [f for f in options.fields or [*HPARAMS, *MODEL] if not judge(f, models, program)]
    print(f"not noticed: {', '.join(unnoticed) or 'none'}")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
