/* SPDX-License-Identifier: MIT */
/* Headers of GGUF files: a right one, one for each rule that is broken, and all that are cut. */
#include "base/gguf.h"

#include "base/file.h"
#include "gguf_file.h"
#include "test.h"

enum { ERR_BYTES = 512 };

static struct buf out;

static int open_out(struct gguf **ret, int64_t whole_bytes, char err[ERR_BYTES])
{
    char path[32];
    *err = '\0';
    REQUIRE(!out.failed);
    REQUIRE_EQ_INT(write_gguf(&out, path), 0);
    int rc = gguf_open(ret, NULL, path, whole_bytes, err, ERR_BYTES);
    unlink(path);
    REQUIRE((rc == 0) == (*ret != NULL) && (rc == 0) == (*err == '\0'));
    if (rc) REQUIRE_MSG(strncmp(err, path, strlen(path)) == 0, "%s", err);
    return rc;
}

/* Every type of value, two tensors. */
static void put_right(void)
{
    buf_clear(&out);
    put_start(&out, 2, 9);
    put_key_text(&out, "text", "a \xC3\xA9");
    put_key_u32(&out, "general.alignment", 64);
    put_key_type(&out, "i8", GGUF_I8);
    put_int(&out, (uint8_t)-7, 1);
    put_key_type(&out, "f32", GGUF_F32);
    put_int(&out, 0x3FC00000, 4);
    put_key_type(&out, "bool", GGUF_BOOL);
    put_int(&out, 1, 1);
    put_key_type(&out, "big", GGUF_U64);
    put_int(&out, UINT64_MAX, 8);
    put_key_type(&out, "nan", GGUF_F32);
    put_int(&out, 0x7FC00000, 4);
    put_key_array(&out, "texts", GGUF_STRING, 3);
    put_text(&out, "x");
    put_text(&out, "");
    put_text(&out, "yz");
    put_key_array(&out, "ints", GGUF_I16, 2);
    put_int(&out, (uint16_t)-2, 2);
    put_int(&out, 300, 2);
    put_tensor(&out, "m", 64, 3, T_Q8_0, 0);
    put_tensor(&out, "v", 5, 0, T_F32, 256);
    put_padding(&out, 64);
    put_zeros(&out, 256 + 20);
}

static void test_right(void **state)
{
    (void)state;
    struct gguf *g;
    char err[ERR_BYTES];
    put_right();
    REQUIRE_EQ_INT(open_out(&g, 0, err), 0);
    REQUIRE_EQ_INT(g->n_keys, 9);
    REQUIRE_EQ_INT(g->n_tensors, 2);
    const struct gguf_tensor *m = &g->tensors[0], *v = &g->tensors[1];
    REQUIRE_EQ_STR(m->name, "m");
    REQUIRE(m->n_dims == 2 && m->dims[0] == 64 && m->dims[1] == 3 && m->dims[2] == 1);
    REQUIRE_EQ_STR(gguf_block_type(m->type)->name, "Q8_0");
    REQUIRE(m->offset % 64 == 0 && m->n_bytes == 3 * 2 * 34 && v->offset == m->offset + 256);
    REQUIRE(v->n_dims == 1 && v->n_bytes == 20 && v->offset + 20 == g->file_bytes);

    const char *text = NULL;
    int64_t n = 0;
    double x = 0;
    bool yes = false;
    REQUIRE_EQ_INT(gguf_string(g, "text", &text, err, sizeof(err)), 1);
    REQUIRE_EQ_STR(text, "a \xC3\xA9");
    REQUIRE_EQ_INT(gguf_int(g, "i8", -10, 10, &n, err, sizeof(err)), 1);
    REQUIRE_EQ_INT(n, -7);
    REQUIRE_EQ_INT(gguf_number(g, "i8", &x, err, sizeof(err)), 1);
    REQUIRE(x == -7);
    REQUIRE_EQ_INT(gguf_number(g, "f32", &x, err, sizeof(err)), 1);
    REQUIRE(x == 1.5);
    REQUIRE_EQ_INT(gguf_bool(g, "bool", &yes, err, sizeof(err)), 1);
    REQUIRE(yes);
    REQUIRE_EQ_INT(gguf_int(g, "absent", 0, 1, &n, err, sizeof(err)), 0);
    REQUIRE(n == -7 && !*err && !gguf_find(g, "absent"));

    const struct gguf_key *key = NULL;
    REQUIRE_EQ_INT(gguf_array(g, "texts", GGUF_STRING, &key, err, sizeof(err)), 1);
    const unsigned char *at = key->data;
    size_t len;
    REQUIRE_EQ_STR(gguf_next_string(&at, &len), "x");
    REQUIRE_EQ_STR(gguf_next_string(&at, &len), "");
    REQUIRE_EQ_INT(len, 0);
    REQUIRE_EQ_STR(gguf_next_string(&at, &len), "yz");
    REQUIRE_EQ_INT(gguf_array(g, "ints", GGUF_I64, &key, err, sizeof(err)), 1);
    REQUIRE(key->n == 2 && gguf_int_at(key, 0) == -2 && gguf_number_at(key, 1) == 300);
    gguf_close(g);
}

/* Values of another kind, or outside the limits, are named. */
static void test_getters(void **state)
{
    (void)state;
    struct gguf *g;
    char err[ERR_BYTES];
    const char *text;
    const struct gguf_key *key;
    int64_t n = 0;
    double x = 0;
    bool yes;
    put_right();
    REQUIRE_EQ_INT(open_out(&g, 0, err), 0);
#define REFUSED(call, words)                                                                       \
    do {                                                                                           \
        REQUIRE_EQ_INT(call, FILE_EINVAL);                                                         \
        REQUIRE_MSG(strstr(err, words), "%s", err);                                                \
    } while (0)
    REFUSED(gguf_int(g, "text", 0, 9, &n, err, sizeof(err)), "key text is not an integer");
    REFUSED(gguf_int(g, "big", 0, 9, &n, err, sizeof(err)), "key big is not an integer");
    REFUSED(gguf_int(g, "f32", 0, 9, &n, err, sizeof(err)), "key f32 is not an integer");
    REFUSED(gguf_int(g, "bool", 0, 9, &n, err, sizeof(err)), "key bool is not an integer");
    REFUSED(gguf_int(g, "ints", 0, 9, &n, err, sizeof(err)), "key ints is not an integer");
    REFUSED(gguf_int(g, "i8", 0, 9, &n, err, sizeof(err)), "key i8 is -7; 0 to 9 are read");
    REFUSED(gguf_number(g, "nan", &x, err, sizeof(err)), "key nan is not a finite number");
    REFUSED(gguf_bool(g, "i8", &yes, err, sizeof(err)), "key i8 is not a bool");
    REFUSED(gguf_string(g, "texts", &text, err, sizeof(err)), "key texts is not a string");
    REFUSED(gguf_array(g, "text", GGUF_STRING, &key, err, sizeof(err)), "key text is not an array");
    REFUSED(gguf_array(g, "texts", GGUF_F64, &key, err, sizeof(err)), "array of finite numbers");
#undef REFUSED
    gguf_close(g);

    static const char *const bad[] = {"a\0b", "\xFF\xFE\x41"};
    for (size_t i = 0; i < 2; i++) {
        buf_clear(&out);
        put_start(&out, 0, 1);
        put_key_array(&out, "a", GGUF_STRING, 1);
        put_bytes(&out, bad[i], 3);
        REQUIRE_EQ_INT(open_out(&g, 0, err), 0);
        REQUIRE_EQ_INT(gguf_array(g, "a", GGUF_STRING, &key, err, sizeof(err)), FILE_EINVAL);
        gguf_close(g);
    }
}

/* Puts `text` over the bytes at offset. */
static void patch(size_t at, const char *text, size_t len)
{
    REQUIRE(at + len <= out.len);
    memcpy(out.data + at, text, len);
}

static void magic(void)
{
    put_right();
    patch(0, "GGML", 4);
}
static void nothing(void)
{
    buf_clear(&out);
}
static void lfs(void)
{
    buf_clear(&out);
    buf_puts(&out, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
}
static void version_1(void)
{
    put_right();
    patch(4, "\1", 1);
}
static void version_4(void)
{
    put_right();
    patch(4, "\4", 1);
}
static void big_endian(void)
{
    put_right();
    patch(4, "\0\0\0\3", 4);
}
static void many_tensors(void)
{
    put_right();
    patch(13, "\1", 1);
}
static void many_keys(void)
{
    put_right();
    patch(21, "\1", 1);
}
static void start(uint64_t n_tensors, uint64_t n_keys)
{
    buf_clear(&out);
    put_start(&out, n_tensors, n_keys);
}
static void key_twice(void)
{
    start(0, 2);
    put_key_u32(&out, "a.b", 1);
    put_key_u32(&out, "a.b", 1);
}
static void key_empty(void)
{
    start(0, 1);
    put_key_u32(&out, "", 1);
}
static void key_line(void)
{
    start(0, 1);
    put_key_u32(&out, "a\nb", 1);
}
static void key_nul(void)
{
    start(0, 1);
    put_bytes(&out, "a\0b", 3);
    put_zeros(&out, 8);
}
static void type_13(void)
{
    start(0, 1);
    put_key_type(&out, "a.b", (enum gguf_type)13);
    put_zeros(&out, 8);
}
static void arrays(void)
{
    start(0, 1);
    put_key_array(&out, "a.b", GGUF_ARRAY, 1);
    put_zeros(&out, 12);
}
static void array_long(void)
{
    start(0, 1);
    put_key_array(&out, "a.b", GGUF_U32, 1ull << 62);
}
static void array_wraps(void)
{
    start(0, 1);
    put_key_array(&out, "a.b", GGUF_U8, UINT64_MAX);
}
static void string_long(void)
{
    start(0, 1);
    put_key_type(&out, "a.b", GGUF_STRING);
    put_int(&out, 1ull << 63, 8);
}
static void bool_2(void)
{
    start(0, 1);
    put_key_array(&out, "a.b", GGUF_BOOL, 2);
    buf_add(&out, "\1\2", 2);
}
static void alignment_3(void)
{
    start(0, 1);
    put_key_u32(&out, "general.alignment", 3);
}
static void alignment_96(void)
{
    start(0, 1);
    put_key_u32(&out, "general.alignment", 96);
}

/* One tensor "t" with 64 bytes of data after it, or more. */
static void one(uint64_t n_cols, uint64_t n_rows, int type, uint64_t offset)
{
    start(1, 0);
    put_tensor(&out, "t", n_cols, n_rows, type, offset);
    put_padding(&out, 32);
    put_zeros(&out, 64);
}
static void dim_0(void)
{
    start(1, 0);
    put_text(&out, "t");
    put_int(&out, 2, 4);
    put_int(&out, 32, 8);
    put_int(&out, 0, 8);
    put_zeros(&out, 12);
}
static void dims_5(void)
{
    start(1, 0);
    put_text(&out, "t");
    put_int(&out, 5, 4);
    put_zeros(&out, 60);
}
static void overflow(void)
{
    one(1ull << 33, 1ull << 33, T_F32, 0);
}
static void overflow_bytes(void)
{
    one(1ull << 31, 1ull << 31, T_F32, 0);
}
static void no_block(void)
{
    one(33, 1, T_Q8_0, 0);
}
static void type_250(void)
{
    one(16, 1, 250, 0);
}
static void type_wraps(void)
{
    one(16, 1, -1, 0);
}
static void jumps(void)
{
    one(8, 1, T_F32, 32);
}
static void data_cut(void)
{
    one(17, 1, T_F32, 0);
}
static void tail(void)
{
    one(8, 1, T_F32, 0);
}
static void tensor_twice(void)
{
    start(2, 0);
    put_tensor(&out, "t", 8, 0, T_F32, 0);
    put_tensor(&out, "t", 8, 0, T_F32, 32);
    put_padding(&out, 32);
    put_zeros(&out, 64);
}
static void tensor_nameless(void)
{
    start(1, 0);
    put_tensor(&out, "", 8, 0, T_F32, 0);
    put_zeros(&out, 64);
}

static const struct {
    void (*make)(void);
    int rc;
    const char *words;
} wrong[] = {
    {magic, FILE_EINVAL, "is not a GGUF file"},
    {nothing, FILE_EINVAL, "is not a GGUF file"},
    {lfs, FILE_EINVAL, "git-lfs pointer"},
    {version_1, FILE_EINVAL, "version 1; versions 2 and 3"},
    {version_4, FILE_EINVAL, "version 4"},
    {big_endian, FILE_EINVAL, "big-endian"},
    {many_tensors, FILE_EINVAL, "has 1099511627778 tensors"},
    {many_keys, FILE_EINVAL, "has 1099511627785 keys"},
    {key_twice, FILE_EINVAL, "key a.b is there twice"},
    {key_empty, FILE_EINVAL, "key 0 has a name"},
    {key_line, FILE_EINVAL, "key 0 has a name"},
    {key_nul, FILE_EINVAL, "key 0 has a name"},
    {type_13, FILE_EINVAL, "key a.b has a value of type 13"},
    {arrays, FILE_EINVAL, "key a.b is an array of arrays"},
    {array_long, FILE_EINVAL, "key a.b has 4611686018427387904 elements"},
    {array_wraps, FILE_EINVAL, "key a.b has 18446744073709551615 elements"},
    {string_long, FILE_EINVAL, "key a.b has a string of 9223372036854775808 bytes"},
    {bool_2, FILE_EINVAL, "key a.b: a bool is 2"},
    {alignment_3, FILE_EINVAL, "key general.alignment is 3"},
    {alignment_96, FILE_EINVAL, "key general.alignment is 96, not a power of two"},
    {dim_0, FILE_EINVAL, "tensor t: dimension 1 is 0"},
    {dims_5, FILE_EINVAL, "tensor t has 5 dimensions"},
    {overflow, FILE_EINVAL, "tensor t: dimension 1 is 8589934592"},
    {overflow_bytes, FILE_EINVAL, "tensor t is larger than any file"},
    {no_block, FILE_EINVAL, "tensor t is Q8_0, which has blocks of 32, in rows of 33"},
    {type_250, FILE_EINVAL, "tensor t is of type 250"},
    {type_wraps, FILE_EINVAL, "tensor t is of type 4294967295"},
    {jumps, FILE_EINVAL, "tensor t begins at data byte 32, where 0 was due"},
    {data_cut, FILE_EINVAL, "tensor t ends beyond the file's"},
    {tail, FILE_EINVAL, "has 32 bytes after the last tensor"},
    {tensor_twice, FILE_EINVAL, "tensor t is there twice"},
    {tensor_nameless, FILE_EINVAL, "tensor 0 has a name"},
};

static void test_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct gguf *g;
        char err[ERR_BYTES];
        wrong[i].make();
        int rc = open_out(&g, 0, err);
        gguf_close(g);
        REQUIRE_MSG(rc == wrong[i].rc && strstr(err, wrong[i].words), "%s: %d, %s", wrong[i].words,
                    rc, err);
    }
}

/* A file cut anywhere is refused; one still being fetched is read as soon as its header is there. */
static void test_cut(void **state)
{
    (void)state;
    put_right();
    const size_t whole = out.len;
    struct gguf *right;
    char text[ERR_BYTES];
    REQUIRE_EQ_INT(open_out(&right, 0, text), 0);
    const size_t header_bytes = right->header_bytes;
    gguf_close(right);
    for (size_t n = 0; n < whole; n++) {
        struct gguf *g;
        char err[ERR_BYTES];
        out.len = n;
        int rc = open_out(&g, 0, err);
        gguf_close(g);
        REQUIRE_MSG(rc < 0, "%zu", n);
        if (n < 8) continue;
        rc = open_out(&g, (int64_t)whole, err);
        gguf_close(g);
        REQUIRE_MSG(rc == (n < header_bytes ? FILE_EIO : 0), "%zu: %d, %s", n, rc, err);
    }
    out.len = whole;
}

/* Whatever bit is turned, the file is refused with a sentence, or keeps the promises. */
static void test_turned_bits(void **state)
{
    (void)state;
    put_right();
    for (size_t i = 0; i < (out.len - 276) * 8; i++) {
        struct gguf *g;
        char err[ERR_BYTES];
        out.data[i / 8] ^= (char)(1 << i % 8);
        if (open_out(&g, 0, err) == 0)
            for (size_t j = 0; j < g->n_tensors; j++)
                REQUIRE(g->tensors[j].offset + g->tensors[j].n_bytes <= g->file_bytes);
        gguf_close(g);
        out.data[i / 8] ^= (char)(1 << i % 8);
    }
}

static void test_open(void **state)
{
    (void)state;
    struct gguf *g;
    char err[ERR_BYTES] = "";
    REQUIRE_EQ_INT(gguf_open(&g, "/nowhere", "x.gguf", 0, err, sizeof(err)), FILE_ENOENT);
    REQUIRE(!g && strstr(err, "x.gguf"));
    gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right),       cmocka_unit_test(test_getters),
        cmocka_unit_test(test_wrong),       cmocka_unit_test(test_cut),
        cmocka_unit_test(test_turned_bits), cmocka_unit_test(test_open),
    };
    buf_init(&out, 1 << 20);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buf_finish(&out);
    return failed;
}
