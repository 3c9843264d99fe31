/* SPDX-License-Identifier: MIT */
/* Safetensors headers, files and indexes: what the format allows, and everything it forbids. */
#include "engine/model/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/model/weights.h"
#include "test.h"

enum { ERR_BYTES = 512 };

/* ---- headers ------------------------------------------------------------------------------- */

struct header_case {
    const char *name, *text;
    int64_t data_bytes;
    int n_tensors;    /* -1: must be refused ... */
    const char *says; /* ... with this in the sentence */
};

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static const struct header_case headers[] = {
    {"nothing", "{}", 0, 0, NULL},
    {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0, NULL},
    {"padding", "{}      ", 0, 0, NULL},
    {"one", "{" T("a", "F32", "[2,3]", 0, 24) "}", 24, 1, NULL},
    {"two in any order", "{" T("b", "BF16", "[4]", 24, 32) "," T("a", "F32", "[6]", 0, 24) "}", 32,
     2, NULL},
    {"odd offset", "{" T("b", "F32", "[1]", 1, 5) "," T("a", "U8", "[1]", 0, 1) "}", 5, 2, NULL},
    {"rank 0", "{" T("a", "F16", "[]", 0, 2) "}", 2, 1, NULL},
    {"rank 9", "{" T("a", "U8", "[1,1,1,1,1,1,1,1,2]", 0, 2) "}", 2, 1, NULL},
    {"no elements",
     "{" T("a", "F32", "[0]", 0, 0) "," T("b", "F32", "[1]", 0, 4) "," T("c", "F32", "[7,0]", 4,
                                                                         4) "}",
     4, 3, NULL},
    {"six bits", "{" T("a", "F6_E2M3", "[4]", 0, 3) "}", 3, 1, NULL},
    {"more fields", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, 1,
     NULL},

    {"empty", "", 0, -1, "does not begin with"},
    {"space first", " {}", 0, -1, "does not begin with"},
    {"a list", "[]", 0, -1, "does not begin with"},
    {"cut", "{\"a\":", 0, -1, "line 1"},
    {"bytes after", "{}x", 0, -1, "line 1"},
    {"bad UTF-8", "{\"\xff\":1}", 0, -1, "line 1"},
    {"name twice", "{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, -1,
     "comes twice"},
    {"metadata of numbers", "{\"__metadata__\":{\"a\":1}}", 0, -1, "__metadata__"},
    {"metadata a list", "{\"__metadata__\":[]}", 0, -1, "__metadata__"},
    {"tensor a number", "{\"a\":1}", 0, -1, "tensor a is not described"},
    {"no dtype", "{\"a\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, -1, "has no dtype"},
    {"strange dtype", "{" T("a", "Q4", "[1]", 0, 1) "}", 1, -1, "unknown dtype"},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, -1, "has no shape"},
    {"negative extent", "{" T("a", "U8", "[-1]", 0, 1) "}", 1, -1, "not an integer"},
    {"real extent", "{" T("a", "U8", "[1.0]", 0, 1) "}", 1, -1, "not an integer"},
    {"product wraps", "{" T("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, -1, "2^63"},
    {"product wraps to span", "{" T("a", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, -1,
     "2^63"},
    {"bits wrap", "{" T("a", "F32", "[1152921504606846976]", 0, 0) "}", 0, -1, "2^63"},
    {"extent of 2^64", "{" T("a", "U8", "[18446744073709551616]", 0, 0) "}", 0, -1, "extent"},
    {"half a byte", "{" T("a", "F4", "[1]", 0, 1) "}", 1, -1, "different number of bytes"},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, -1, "data_offsets"},
    {"one offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, -1,
     "data_offsets"},
    {"offsets of text", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[\"0\",\"1\"]}}",
     1, -1, "data_offsets"},
    {"negative offset", "{" T("a", "U8", "[1]", -1, 0) "}", 1, -1, "data_offsets"},
    {"reversed", "{" T("a", "U8", "[1]", 1, 0) "}", 1, -1, "before it begins"},
    {"span too long", "{" T("a", "F32", "[1]", 0, 8) "}", 8, -1, "different number of bytes"},
    {"span too short", "{" T("a", "F32", "[2]", 0, 4) "}", 4, -1, "different number of bytes"},
    {"hole", "{" T("a", "U8", "[1]", 0, 1) "," T("b", "U8", "[1]", 2, 3) "}", 3, -1, "hole"},
    {"hole at the start", "{" T("a", "U8", "[1]", 1, 2) "}", 2, -1, "hole"},
    {"overlap", "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 1, 3) "}", 3, -1, "overlap"},
    {"the same span", "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 0, 2) "}", 2, -1,
     "overlap"},
    {"beyond the end", "{" T("a", "U8", "[9]", 0, 9) "}", 8, -1, "truncated download"},
    {"a byte too many", "{" T("a", "U8", "[8]", 0, 8) "}", 9, -1, "the file has 9"},
    {"far beyond", "{" T("a", "U8", "[9223372036854775807]", 0, 9223372036854775807) "}", 8, -1,
     "2^63"},
};

static void test_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(headers); i++) {
        const struct header_case *c = &headers[i];
        char err[ERR_BYTES] = "", name[] = "f";
        struct eng_shard shard = {.fd = -1, .name = strdup(name)};
        int rc = eng_shard_parse(&shard, c->text, strlen(c->text), c->data_bytes, err, sizeof(err));
        if (c->n_tensors >= 0) {
            REQUIRE_MSG(rc == 0, "%s: %s", c->name, err);
            REQUIRE_MSG(shard.n_tensors == (size_t)c->n_tensors, "%s", c->name);
        } else {
            REQUIRE_MSG(rc == ENG_EINVAL, "%s: rc %d", c->name, rc);
            REQUIRE_MSG(strncmp(err, "f: ", 3) == 0 && strstr(err, c->says), "%s: \"%s\"", c->name,
                        err);
        }
        eng_shard_finish(&shard);
    }
}

static void test_fields(void **state)
{
    (void)state;
    static const char text[] = "{" T("w", "F16", "[3,5]", 4, 34) "," T("s", "F32", "[]", 0, 4) "}";
    char err[ERR_BYTES] = "", shape[ENG_SHAPE_TEXT];
    struct eng_shard shard = {.fd = -1, .name = strdup("f")};
    REQUIRE_EQ_INT(eng_shard_parse(&shard, text, strlen(text), 34, err, sizeof(err)), 0);
    const struct eng_tensor *s = &shard.tensors[0], *w = &shard.tensors[1];
    REQUIRE_EQ_STR(s->name, "s");
    REQUIRE_EQ_INT(s->rank, 0);
    REQUIRE_EQ_INT(s->n_elements, 1);
    REQUIRE_EQ_STR(w->name, "w");
    REQUIRE_EQ_INT(w->dtype, ENG_DTYPE_F16);
    REQUIRE_EQ_INT(w->n_bytes, 30);
    REQUIRE_EQ_INT(w->offset, 4);
    eng_tensor_shape(w, shape);
    REQUIRE_EQ_STR(shape, "[3, 5]");
    eng_shard_finish(&shard);
}

/* ---- files --------------------------------------------------------------------------------- */

/* A directory of its own, emptied at the end. */
static char dir[] = "/tmp/hearth-test-safetensors-XXXXXX";

static void write_file(const char *name, const void *data, size_t n)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    REQUIRE(f && fwrite(data, 1, n, f) == n);
    REQUIRE(fclose(f) == 0);
}

static void remove_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    unlink(path);
}

/* A file of this header length, header and number of data bytes. */
static void write_safetensors(const char *name, uint64_t len, const char *header, size_t n_data)
{
    uint8_t buf[1024] = {0};
    for (int i = 0; i < 8; i++)
        buf[i] = (uint8_t)(len >> (8 * i));
    size_t n = strlen(header);
    REQUIRE(8 + n + n_data <= sizeof(buf));
    memcpy(buf + 8, header, n);
    write_file(name, buf, 8 + n + n_data);
}

static void expect_refused(const char *name, const char *says)
{
    char err[ERR_BYTES] = "";
    struct eng_shard shard;
    int rc = eng_shard_init(&shard, dir, name, err, sizeof(err));
    REQUIRE_MSG(rc < 0, "%s should be refused: %s", name, says);
    REQUIRE_MSG(strstr(err, says) && strstr(err, name), "\"%s\" lacks \"%s\"", err, says);
    eng_shard_finish(&shard);
}

static void test_files(void **state)
{
    (void)state;
    static const char one[] = "{" T("a", "U8", "[4]", 0, 4) "}";
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    uint64_t len = strlen(one);
    char err[ERR_BYTES] = "";
    struct eng_shard shard;

    write_safetensors("f", len, one, 4);
    REQUIRE_EQ_INT(eng_shard_init(&shard, dir, "f", err, sizeof(err)), 0);
    REQUIRE_EQ_INT(shard.data_start, 8 + (int64_t)len);
    eng_shard_finish(&shard);

    write_safetensors("f", len, one, 3);
    expect_refused("f", "truncated download");
    write_safetensors("f", len, one, 5);
    expect_refused("f", "the file has 5");
    write_file("f", "", 0);
    expect_refused("f", "0 bytes are too few");
    write_file("f", "\1\0\0\0\0\0\0", 7);
    expect_refused("f", "7 bytes are too few");
    write_file("f", "\0\0\0\0\0\0\0\0", 8);
    expect_refused("f", "does not begin with");
    write_safetensors("f", len + 5, one, 4);
    expect_refused("f", "in a file of");
    write_safetensors("f", 100000001, one, 4);
    expect_refused("f", "limit is 100000000");
    write_safetensors("f", UINT64_C(1) << 63, one, 4);
    expect_refused("f", "limit is 100000000");
    write_safetensors("f", UINT64_MAX, one, 4);
    expect_refused("f", "limit is 100000000");
    write_file("f", pointer, strlen(pointer));
    expect_refused("f", "git-lfs pointer");
    remove_file("f");
    expect_refused("f", "No such file");
    REQUIRE_EQ_INT(eng_shard_init(&shard, "/", "tmp", err, sizeof(err)), ENG_EINVAL);
    REQUIRE_MSG(strstr(err, "not a regular file"), "%s", err);
    eng_shard_finish(&shard);
}

/* ---- indexes ------------------------------------------------------------------------------- */

static const struct {
    const char *text, *says; /* NULL: fine */
} indexes[] = {
    {"{\"weight_map\":{\"a\":\"x.safetensors\",\"b\":\"sub/y..safetensors\"}}", NULL},
    {"{\"metadata\":{},\"weight_map\":{\"a\":\"x\",\"b\":\"x\",\"c\":\"y\"}}", NULL},
    {"{}", "no weight_map"},
    {"{\"weight_map\":{}}", "no weight_map"},
    {"{\"weight_map\":[]}", "no weight_map"},
    {"{\"weight_map\":{\"a\":\"../x\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"x/../../y\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"./x\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"..\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"x//y\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"x/\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"\"}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":1}}", "not a file name within"},
    {"{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "comes twice"},
    {"[1]", "not a JSON object"},
};

static void test_indexes(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(indexes); i++) {
        char err[ERR_BYTES] = "";
        struct eng_index index = {0};
        int rc =
            eng_index_parse(&index, indexes[i].text, strlen(indexes[i].text), err, sizeof(err));
        if (indexes[i].says)
            REQUIRE_MSG(rc == ENG_EINVAL && strstr(err, indexes[i].says), "%s: %s", indexes[i].text,
                        err);
        else
            REQUIRE_MSG(rc == 0 && index.n_files == 2, "%s: %s", indexes[i].text, err);
        eng_index_finish(&index);
    }
}

/* ---- sets of files ------------------------------------------------------------------------- */

static const char set_index[] =
    "{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}";
static const char header_a[] = "{" T("a", "U8", "[4]", 0, 4) "}";
static const char header_b[] = "{" T("b", "U8", "[4]", 0, 4) "}";
static const char header_ab[] = "{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 4, 8) "}";

/* Opens the set; NULL: it must be fine. */
static void expect_set(const char *says)
{
    char err[ERR_BYTES] = "";
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    struct eng_weights *w = NULL;
    int rc = eng_weights_open(&w, dir, &r);
    if (says) {
        REQUIRE_MSG(rc < 0 && strstr(err, says), "\"%s\" lacks \"%s\"", err, says);
    } else {
        REQUIRE_MSG(rc == 0, "%s", err);
        REQUIRE_EQ_INT(w->n_tensors, 2);
        REQUIRE_EQ_STR(eng_weights_find(w, "b")->shard->name, "2.safetensors");
        REQUIRE(eng_weights_find(w, "c") == NULL);
    }
    eng_weights_close(w);
}

/* Checkpoints of the first BERT. */
static void test_old_names_of_norms(void **state)
{
    static const char header[] = "{" T("e.LayerNorm.gamma", "U8", "[4]", 0, 4) "," T(
        "e.LayerNorm.beta", "U8", "[4]", 4, 8) "," T("e.Norm.gamma", "U8", "[4]", 8, 12) "}";
    char err[ERR_BYTES] = "";
    struct eng_report r = {.err = err, .errlen = sizeof(err)};
    struct eng_weights *w = NULL;
    (void)state;
    write_safetensors("model.safetensors", strlen(header), header, 12);
    REQUIRE_MSG(eng_weights_open(&w, dir, &r) == 0, "%s", err);
    REQUIRE_EQ_STR(eng_weights_find(w, "e.LayerNorm.weight")->name, "e.LayerNorm.gamma");
    REQUIRE_EQ_STR(eng_weights_find(w, "e.LayerNorm.bias")->name, "e.LayerNorm.beta");
    REQUIRE(!eng_weights_find(w, "e.Norm.weight") && !eng_weights_find(w, "LayerNorm.weight") &&
            !eng_weights_find(w, "weight"));
    eng_weights_close(w);
    remove_file("model.safetensors");
}

static void test_sets(void **state)
{
    (void)state;
    static const char name[] = "model.safetensors.index.json";
    expect_set("has neither model.safetensors nor model.safetensors.index.json");
    write_file("pytorch_model.bin", "x", 1);
    expect_set("has only pytorch_model.bin");
    remove_file("pytorch_model.bin");
    write_file(name, set_index, strlen(set_index));
    write_safetensors("1.safetensors", strlen(header_a), header_a, 4);
    expect_set("2.safetensors: cannot be opened");
    write_safetensors("2.safetensors", strlen(header_b), header_b, 4);
    expect_set(NULL);
    write_safetensors("2.safetensors", strlen(header_b), header_b, 3);
    expect_set("2.safetensors: the header describes 4 bytes of data, the file has 3");
    write_safetensors("2.safetensors", strlen(header_a), header_a, 4);
    expect_set("tensor a is in two files");
    write_safetensors("2.safetensors", 2, "{}", 0);
    expect_set("2.safetensors: tensor b is not in 2.safetensors");
    write_safetensors("1.safetensors", strlen(header_ab), header_ab, 8);
    expect_set("tensor b is not in 2.safetensors");
    remove_file("1.safetensors");
    remove_file("2.safetensors");
    remove_file(name);
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_indexes),
        cmocka_unit_test(test_old_names_of_norms),
        cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
