#include "base/philox.h"

#include <stddef.h>

#include "support/check_main.h"

static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
#include "data/philox4x32_kat.inc"
};

START_TEST(known_answers)
{
    uint32_t out[4];
    tsr__philox4x32(known[_i].counter, known[_i].key, out);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(out[i], known[_i].out[i]);
}
END_TEST

/* Checks that an element's word is the output of the block function for the documented counter. */
static void check_word(uint64_t seed, uint64_t subsequence, uint64_t index)
{
    uint64_t block = index >> 2;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)subsequence,
                                 (uint32_t)(subsequence >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    tsr__philox4x32(counter, key, out);
    ck_assert_uint_eq(tsr__philox_word(seed, subsequence, index), out[index & 3]);
}

START_TEST(word_layout)
{
    const uint64_t values[] = {
        0, 1, 2, 3, 4, 7, UINT64_C(0x3ffffffff), UINT64_C(0x400000000), UINT64_MAX - 1, UINT64_MAX};
    const size_t count = sizeof values / sizeof *values;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            check_word(values[i], values[j], values[count - 1 - (i + j) % count]);
}
END_TEST

/* Checks one word against the published vectors: element 2 of seed 0 is word 2 of the all-zero
 * block. */
START_TEST(word_of_known_block)
{
    ck_assert_uint_eq(tsr__philox_word(0, 0, 0), 0x6627e8d5);
    ck_assert_uint_eq(tsr__philox_word(0, 0, 2), 0xbc57ac4c);
    ck_assert_uint_eq(tsr__philox_word(0, 0, 3), 0x9b00dbd8);
}
END_TEST

TESTS(philox)
{
    tcase_add_loop_test(tests, known_answers, 0, (int)(sizeof known / sizeof *known));
    tcase_add_test(tests, word_layout);
    tcase_add_test(tests, word_of_known_block);
}
