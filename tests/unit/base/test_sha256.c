/* SPDX-License-Identifier: MIT */
/*
 * SHA-256: the examples of FIPS 180-4, in pieces cut everywhere; the processor's instructions
 * against the portable code. Includes the source to reach both.
 */
#include "test.h"

#include "base/sha256.c"

static void require_digest(const uint8_t digest[SHA256_BYTES], const char *wanted)
{
    char hex[2 * SHA256_BYTES + 1];
    for (int k = 0; k < SHA256_BYTES; k++)
        snprintf(hex + 2 * k, 3, "%02x", digest[k]);
    REQUIRE_EQ_STR(hex, wanted);
}

static void published_vectors(void **state)
{
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
         "lmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        size_t len = strlen(cases[i].text);
        uint8_t digest[SHA256_BYTES];
        sha256(digest, cases[i].text, len);
        require_digest(digest, cases[i].hex);
        for (size_t cut = 0; cut <= len; cut++) {
            struct sha256 hash;
            sha256_init(&hash);
            sha256_update(&hash, cases[i].text, cut);
            sha256_update(&hash, cases[i].text + cut, len - cut);
            sha256_final(&hash, digest);
            require_digest(digest, cases[i].hex);
        }
    }
}

static void a_million_letters(void **state)
{
    char text[997];
    uint8_t digest[SHA256_BYTES];
    struct sha256 hash;
    (void)state;
    memset(text, 'a', sizeof(text));
    sha256_init(&hash);
    for (size_t left = 1000000; left;) {
        size_t n = left < sizeof(text) ? left : sizeof(text);
        sha256_update(&hash, text, n);
        left -= n;
    }
    sha256_final(&hash, digest);
    require_digest(digest, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* The state after n blocks of different bytes. */
static void both_ways_agree(void **state)
{
    uint8_t data[9 * BLOCK];
    uint32_t x = 1;
    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (size_t n = 0; n <= sizeof(data) / BLOCK; n++) {
        struct sha256 a, b;
        sha256_init(&a);
        sha256_init(&b);
        compress_portable(a.h, data, n);
        if (has_instructions())
            compress_fast(b.h, data, n);
        else
            compress_portable(b.h, data, n);
        REQUIRE(memcmp(a.h, b.h, sizeof(a.h)) == 0);
    }
}

static void portable_code_is_right(void **state)
{
    uint8_t block[BLOCK] = {'a', 'b', 'c', 0x80};
    struct sha256 s;
    (void)state;
    block[BLOCK - 1] = 24;
    sha256_init(&s);
    compress_portable(s.h, block, 1);
    REQUIRE_EQ_INT(s.h[0], 0xba7816bf);
    REQUIRE_EQ_INT(s.h[7], 0xf20015ad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(a_million_letters),
        cmocka_unit_test(both_ways_agree),
        cmocka_unit_test(portable_code_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
