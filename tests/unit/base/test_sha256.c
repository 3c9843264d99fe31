/* SPDX-License-Identifier: MIT */
/*
 * SHA-256 and SHA-1: the examples of FIPS 180-4, in pieces cut everywhere, and messages of every
 * length.
 */
#include "test.h"

#include "base/sha256.h"

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

static void sha1_vectors(void **state)
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
static void sha1_of_all_lengths(void **state)
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

static void short_names(void **state)
{
    static const uint64_t key[2] = {1, 2}, other[2] = {1, 3};
    uint64_t plain = sha256_64(key, "a request", 9);
    (void)state;
    REQUIRE(sha256_64(key, "a request", 9) == plain);
    REQUIRE(sha256_64(other, "a request", 9) != plain);
    REQUIRE(sha256_64(key, "a request", 8) != plain);
    REQUIRE(sha256_64(key, "A request", 9) != plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),   cmocka_unit_test(a_million_letters),
        cmocka_unit_test(short_names),         cmocka_unit_test(sha1_vectors),
        cmocka_unit_test(sha1_of_all_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
