/* SPDX-License-Identifier: MIT */
/* SHA-1: the examples of FIPS 180-4, in pieces cut everywhere, and messages of every length. */
#include "test.h"

#include "base/sha1.h"

static const char *digest_of(const char *text, size_t len, size_t cut)
{
    static char hex[2 * SHA1_BYTES + 1];
    uint8_t digest[SHA256_BYTES];
    struct sha256 s;
    sha1_init(&s);
    sha256_update(&s, text, cut);
    sha256_update(&s, text + cut, len - cut);
    sha256_final(&s, digest);
    for (int i = 0; i < SHA1_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    return hex;
}

static void published_vectors(void **state)
{
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
        {"blob 0", "05356697d15e72e771e961a1a30d5aa0bc49fdf4"},
    };
    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++)
        for (size_t cut = 0, len = strlen(cases[i].text); cut <= len; cut++)
            REQUIRE_EQ_STR(digest_of(cases[i].text, len, cut), cases[i].hex);
}

/* Every place that the end of a message can have in a block. */
static void all_lengths(void **state)
{
    char text[130], wanted[2 * SHA1_BYTES + 1] = "", *all = NULL;
    size_t len = 0;
    (void)state;
    memset(text, 'x', sizeof(text));
    all = malloc(sizeof(text) * 2 * SHA1_BYTES);
    for (size_t n = 0; n < sizeof(text); n++, len += 2 * SHA1_BYTES)
        memcpy(all + len, digest_of(text, n, n / 2), 2 * SHA1_BYTES);
    snprintf(wanted, sizeof(wanted), "%s", digest_of(all, len, 0));
    free(all);
    REQUIRE_EQ_STR(wanted, "3bbe88bdb89312954ced71b5ab31e144c9122748");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(all_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
