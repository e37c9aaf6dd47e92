/* Computes MLX's random words many at a time, and compares them with words computed one at a
 * time, whose hash has known answers. */
#include <stdlib.h>
#include <string.h>

#include "rng/mlx_words.h"
#include "rng/rng.h"
#include "support/check_main.h"

#define POISON UINT32_C(0xa5a5a5a5)

/* Odd and even counts of words, around multiples of a vector and of the runs that are computed
 * together. */
static const uint64_t counts[] = {0,  1,    2,    3,    4,    5,    15,   16,   17,   31,  32,
                                  33, 2046, 2047, 2048, 2049, 2050, 2079, 4096, 4097, 9001};
#define COUNTS (sizeof counts / sizeof *counts)

static const tsr_threefry_key key = {{0x12345678, 0x9abcdef0}};

typedef struct taken {
    uint32_t *words;
    uint64_t count, size;
} taken;

static void take(void *user, uint64_t position, const uint32_t *words, size_t count)
{
    taken *to = user;
    ck_assert_uint_le(position + count, to->size);
    for (size_t i = 0; i < count; i++)
        to->words[position + i] = words[i];
    to->count += count;
}

/* Checks that there are as many words as positions and that all are right. Since each position
 * was taken once, none is missing. */
static void check_words(const tsr__mlx_words *words, const taken *got)
{
    ck_assert_uint_eq(got->count, words->count);
    for (uint64_t i = 0; i < words->count; i++)
        ck_assert_uint_eq(got->words[i], tsr__mlx_word(words, i));
}

START_TEST(every_level)
{
    const tsr__mlx_words words = tsr__mlx_words_of(key, counts[_i]);
    int levels = 0;
    bool more = true;
    while (more) {
        taken got = {calloc(counts[_i] + 1, sizeof *got.words), 0, counts[_i]};
        ck_assert_ptr_nonnull(got.words);
        more = tsr__mlx_words_each_at(&words, levels, take, &got);
        if (more)
            check_words(&words, &got);
        else
            ck_assert_uint_eq(got.count, 0);
        free(got.words);
        levels += more;
    }
    ck_assert_int_ge(levels, 1);
}
END_TEST

START_TEST(best_level)
{
    const tsr__mlx_words words = tsr__mlx_words_of(key, counts[_i]);
    taken got = {calloc(counts[_i] + 1, sizeof *got.words), 0, counts[_i]};
    ck_assert_ptr_nonnull(got.words);
    tsr__mlx_words_each(&words, take, &got);
    check_words(&words, &got);
    free(got.words);
}
END_TEST

/* Sorts values of every width, at any address, with an incomplete last word. */
START_TEST(bits)
{
    const int width = 1 << _i;
    for (size_t c = 0; c < COUNTS; c++) {
        const uint64_t count = counts[c], size = count * (uint64_t)width;
        const tsr__mlx_words words = tsr__mlx_words_of(key, (size + 3) / 4);
        uint8_t *bytes = malloc(size + 9);
        ck_assert_ptr_nonnull(bytes);
        memset(bytes, 0xa5, size + 9);
        ck_assert_ok(tsr_threefry_bits(key, width, count, bytes + 1));
        for (uint64_t i = 0; i < size + 9; i++) {
            bool inside = i >= 1 && i < size + 1;
            uint32_t word = inside ? tsr__mlx_word(&words, (i - 1) / 4) : POISON;
            ck_assert_uint_eq(bytes[i], word >> ((inside ? (i - 1) % 4 : 0) * 8) & 0xff);
        }
        free(bytes);
    }
}
END_TEST

START_TEST(numbers)
{
    const uint64_t count = counts[_i];
    float *reals = malloc((count + 1) * sizeof *reals);
    int32_t *integers = malloc((count + 1) * sizeof *integers);
    ck_assert(reals != NULL && integers != NULL);
    reals[count] = 7;
    integers[count] = 7;
    ck_assert_ok(tsr_threefry_uniform(key, count, reals));
    ck_assert_ok(tsr_threefry_randint(key, -5, 1000, count, integers));
    for (uint64_t i = 0; i < count; i++) {
        ck_assert(reals[i] == tsr__threefry_uniform_at(key, count, i));
        ck_assert_int_eq(integers[i], tsr__threefry_randint_at(key, -5, 1000, count, i));
    }
    ck_assert(reals[count] == 7 && integers[count] == 7);
    free(reals);
    free(integers);
}
END_TEST

/* After sorting, each index must occur once, and the words must be in order, equal words in the
 * order of their indices. */
START_TEST(permutation)
{
    const uint64_t count = counts[_i];
    const tsr__mlx_words words = tsr__mlx_words_of(key, count);
    int64_t *order = malloc((count + 1) * sizeof *order);
    bool *seen = calloc(count + 1, sizeof *seen);
    ck_assert(order != NULL && seen != NULL);
    ck_assert_ok(tsr_threefry_permutation(key, count, order));
    for (uint64_t i = 0; i < count; i++) {
        ck_assert(order[i] >= 0 && (uint64_t)order[i] < count && !seen[order[i]]);
        seen[order[i]] = true;
        if (i == 0)
            continue;
        uint32_t before = tsr__mlx_word(&words, (uint64_t)order[i - 1]);
        uint32_t here = tsr__mlx_word(&words, (uint64_t)order[i]);
        ck_assert(before < here || (before == here && order[i - 1] < order[i]));
    }
    free(order);
    free(seen);
}
END_TEST

TESTS(mlx_words)
{
    tcase_add_loop_test(tests, every_level, 0, COUNTS);
    tcase_add_loop_test(tests, best_level, 0, COUNTS);
    tcase_add_loop_test(tests, bits, 0, 3);
    tcase_add_loop_test(tests, numbers, 0, COUNTS);
    tcase_add_loop_test(tests, permutation, 0, COUNTS);
}
