/* SPDX-License-Identifier: MIT */
/*
 * The models of a cache: each revision, how much of it is there, by a listing and without one, and
 * the first reason against serving it.
 */
#include "fake_root.h"
#include "test.h"

#include <unistd.h>

#include "server/hub/settings.h"
#include "server/hub/inventory.h"

#define A "0123456789abcdef0123456789abcdef01234567"
#define B "abcdefabcdefabcdefabcdefabcdefabcdefabcd"
#define CONFIG                                                                                     \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_attention_heads\":4,"      \
    "\"num_hidden_layers\":4,\"vocab_size\":100}"

static char seen[2000], err[HUB_ERR_SIZE];

static void note(void *ctx, const struct hub_model *m)
{
    (*(int *)ctx)++;
    REQUIRE(m->servable == !m->reason[0]);
    snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s %.12s %.4s %lld %d %s|%s\n",
             m->name, m->revision, m->commit, (long long)m->n_bytes, m->percent,
             m->complete ? "complete" : "partial", m->reason);
}

static const char *visit(void)
{
    char root[300];
    int n = 0;
    snprintf(root, sizeof(root), "%s/hub", fake_root);
    seen[0] = '\0';
    REQUIRE_MSG(hub_inventory_visit(root, note, &n, err) == 0, "%s", err);
    return seen;
}

#define TREE(files) "{\"format_version\":1,\"files\":{" files "}}"
#define ENTRY(path, size) "\"" path "\":{\"size\":" size ",\"blob_id\":\"" A "\"}"

static void no_cache(void **state)
{
    int n = 0;
    (void)state;
    REQUIRE_EQ_STR(visit(), "");
    fake_root_put("/hub", "a file");
    snprintf(seen, sizeof(seen), "%s/hub", fake_root);
    REQUIRE_EQ_INT(hub_inventory_visit(seen, note, &n, err), -1);
    REQUIRE_MSG(strstr(err, "cannot read ") && strstr(err, "Not a directory"), "%s", err);
}

/* Names in order, as people know them; references of folders too; lone commits last looked for. */
static void revisions(void **state)
{
    (void)state;
    fake_root_put("/hub/models--org--x/refs/main", A);
    fake_root_put("/hub/models--org--x/refs/refs/pr/1", A);
    fake_root_put("/hub/models--org--x/refs/odd", "nonsense");
    fake_root_put("/hub/models--org--x/refs/.hidden", B);
    fake_root_put("/hub/models--org--x/snapshots/" A "/config.json", "{}");
    fake_root_put("/hub/models--org--x/snapshots/" B "/1/config.json", "{}");
    fake_root_put("/hub/models--org--x/snapshots/other/config.json", "{}");
    fake_root_put("/hub/models--org-a--x/snapshots/" B "/x", "12345");
    fake_root_put("/hub/datasets--org--x/snapshots/" B "/x", "");
    REQUIRE_EQ_STR(visit(), "org-a/x abcdefabcdef abcd 5 -1 partial|not complete\n"
                            "org/x abcdefabcdef abcd 2 -1 partial|not complete\n"
                            "org/x main 0123 2 -1 partial|not complete\n"
                            "org/x refs/pr/1 0123 2 -1 partial|not complete\n");
}

static void by_listing(void **state)
{
    (void)state;
    fake_root_put("/hub/models--org--x/refs/main", A);
    fake_root_put("/hub/models--org--x/trees/" A ".json",
                  TREE(ENTRY("config.json", "10") "," ENTRY("tokenizer.json", "10") "," ENTRY(
                      "model.safetensors", "20") "," ENTRY("README.md", "1000")));
    fake_root_put("/hub/models--org--x/snapshots/" A "/config.json", "0123456789");
    fake_root_put("/hub/models--org--x/snapshots/" A "/model.safetensors", "too short");
    fake_root_put("/hub/models--org--x/blobs/" A ".1.incomplete", "12345");
    REQUIRE_EQ_STR(visit(), "org/x main 0123 20 50 partial|not complete\n");
    fake_root_put("/hub/models--org--x/snapshots/" A "/model.safetensors", "01234567890123456789");
    fake_root_put("/hub/models--org--x/snapshots/" A "/tokenizer.json", "0123456789");
    visit();
    REQUIRE_MSG(strncmp(seen, "org/x main 0123 40 100 complete|", 32) == 0 && strlen(seen) > 33,
                "%s", seen);
    fake_root_put("/hub/models--org--x/trees/" A ".json",
                  TREE(ENTRY("config.json", "10") "," ENTRY("x.bin", "1")));
    visit();
    REQUIRE_MSG(strstr(seen, "complete|org/x has no safetensors weights (it has x.bin"), "%s",
                seen);
}

static void by_index(void **state)
{
    (void)state;
    fake_root_put("/hub/models--org--x/refs/main", A);
    fake_root_put("/hub/models--org--x/trees/" A ".json",
                  TREE(ENTRY("config.json", "2") "," ENTRY("tokenizer.json", "2") "," ENTRY(
                      "model.safetensors.index.json", "40") "," ENTRY("1.safetensors", "5")));
    fake_root_put("/hub/models--org--x/snapshots/" A "/config.json", "{}");
    fake_root_put("/hub/models--org--x/snapshots/" A "/tokenizer.json", "{}");
    REQUIRE_EQ_STR(visit(), "org/x main 0123 4 -1 partial|not complete\n");
    fake_root_put("/hub/models--org--x/snapshots/" A "/model.safetensors.index.json",
                  "{\"weight_map\":{\"a\":\"1.safetensors\"}}    ");
    REQUIRE_EQ_STR(visit(), "org/x main 0123 44 89 partial|not complete\n");
    fake_root_put("/hub/models--org--x/snapshots/" A "/1.safetensors", "12345");
    visit();
    REQUIRE_MSG(strncmp(seen, "org/x main 0123 49 100 complete|", 32) == 0, "%s", seen);
}

/* Without a listing what config.json and the weights say decides. */
static void copied_by_hand(void **state)
{
    (void)state;
    fake_root_put("/hub/models--x/snapshots/" A "/config.json", CONFIG);
    fake_root_put("/hub/models--x/snapshots/" A "/model.safetensors", "x");
    REQUIRE_EQ_STR(visit(), "x 0123456789ab 0123 119 -1 complete|model.safetensors: 1 bytes are "
                            "too few for a safetensors file\n");
}

static void link_to_demo(const char *name)
{
    char from[600], to[600];
    snprintf(from, sizeof(from), "%s/deploy/demo/%s", test_source_root(), name);
    snprintf(to, sizeof(to), "%s/hub/models--x/snapshots/" A "/%s", fake_root, name);
    REQUIRE_EQ_INT(symlink(from, to), 0);
}

static void servable(void **state)
{
    (void)state;
    fake_root_put("/hub/models--x/snapshots/" A "/README.md", "x");
    link_to_demo("config.json");
    link_to_demo("model.safetensors");
    visit();
    REQUIRE_MSG(strstr(seen, "-1 complete|it has no tokenizer.json\n"), "%s", seen);
    link_to_demo("tokenizer.json");
    visit();
    REQUIRE_MSG(strstr(seen, "-1 complete|\n"), "%s", seen);
}

int main(void)
{
#define ON_DISK(test) cmocka_unit_test_setup_teardown(test, fake_root_make, fake_root_remove)
    const struct CMUnitTest tests[] = {
        ON_DISK(no_cache), ON_DISK(revisions),      ON_DISK(by_listing),
        ON_DISK(by_index), ON_DISK(copied_by_hand), ON_DISK(servable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
