/* SPDX-License-Identifier: MIT */
/* SipHash-2-4: vectors of its authors, with key 00 01 .. 0f and input 00 01 .. */
#include "test.h"

#include "base/siphash.h"

static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

static void published_vectors(void **state)
{
    static const struct {
        size_t len;
        uint64_t hash;
    } cases[] = {
        {0, 0x726fdb47dd0e0e31u},  {1, 0x74f839c593dc67fdu},  {2, 0x0d6c8009d9a94f5au},
        {3, 0x85676696d7fb7e2du},  {4, 0xcf2794e0277187b7u},  {5, 0x18765564cd99a68du},
        {6, 0xcbc9466e58fee3ceu},  {7, 0xab0200f58b01d137u},  {8, 0x93f5f5799a932462u},
        {15, 0xa129ca6149be45e5u}, {63, 0x958a324ceb064572u},
    };
    uint8_t input[64];
    (void)state;
    for (size_t i = 0; i < sizeof(input); i++)
        input[i] = (uint8_t)i;
    for (size_t i = 0; i < N_OF(cases); i++)
        REQUIRE_MSG(siphash(key, input, cases[i].len) == cases[i].hash, "%zu bytes", cases[i].len);
}

/* Every bit of the key and of the input changes the result; the input may lie at any address. */
static void every_bit_counts(void **state)
{
    uint8_t input[40] = {0};
    uint64_t plain = siphash(key, input, 23);
    (void)state;
    for (int bit = 0; bit < 128; bit++) {
        uint64_t other[2] = {key[0], key[1]};
        other[bit / 64] ^= 1ull << bit % 64;
        REQUIRE(siphash(other, input, 23) != plain);
    }
    for (int bit = 0; bit < 23 * 8; bit++) {
        input[bit / 8] ^= (uint8_t)(1 << bit % 8);
        REQUIRE(siphash(key, input, 23) != plain);
        input[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (size_t at = 0; at < 9; at++)
        REQUIRE(siphash(key, input + at, 23) == plain);
    REQUIRE(siphash(key, input, 24) != plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_vectors),
        cmocka_unit_test(every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
