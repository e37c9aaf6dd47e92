/* Uses generators of any kind through tsr_rng. */
#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "rng/rng.h"
#include "support/golden.h"
#include "support/refused.h"

static const tsr_rng_kind kinds[] = {TSR_RNG_PHILOX, TSR_RNG_MT19937, TSR_RNG_DOTNET,
                                     TSR_RNG_THREEFRY};
enum { KINDS = sizeof kinds / sizeof *kinds };

START_TEST(names)
{
    const char *const expected[] = {"philox", "mt19937", "dotnet", "threefry"};
    for (int i = 0; i < KINDS; i++) {
        tsr_rng_kind kind = (tsr_rng_kind)99;
        ck_assert_str_eq(tsr_rng_kind_name(kinds[i]), expected[i]);
        ck_assert_ok(tsr_rng_kind_parse(expected[i], &kind));
        ck_assert_int_eq(kind, kinds[i]);
    }
    tsr_rng_kind kind = TSR_RNG_DOTNET;
    ck_assert_str_eq(tsr_rng_kind_name((tsr_rng_kind)4), "?");
    ck_assert_str_eq(tsr_rng_kind_name((tsr_rng_kind)-1), "?");
    ck_assert_error(tsr_rng_kind_parse("pcg", &kind), TSR_ERR_NOT_FOUND,
                    "rng: 'pcg' is none of philox, mt19937, dotnet and threefry");
    ck_assert_int_eq(kind, TSR_RNG_DOTNET);
}
END_TEST

START_TEST(init_errors)
{
    tsr_rng rng = {.kind = TSR_RNG_THREEFRY};
    ck_assert_error(tsr_rng_init((tsr_rng_kind)9, 0, 0, &rng), TSR_ERR_INVALID,
                    "rng: 9 is no kind of generator");
    ck_assert_error(tsr_rng_init(TSR_RNG_DOTNET, UINT64_C(2147483648), 0, &rng), TSR_ERR_INVALID,
                    "rng: seed 2147483648 is outside System.Random's -2147483648 to 2147483647");
    ck_assert_error(tsr_rng_init(TSR_RNG_DOTNET, (uint64_t)INT64_C(-2147483649), 0, &rng),
                    TSR_ERR_INVALID,
                    "rng: seed 18446744071562067967 is outside System.Random's -2147483648 to "
                    "2147483647");
    ck_assert_error(tsr_rng_init(TSR_RNG_MT19937, 0, 3, &rng), TSR_ERR_INVALID,
                    "rng: stream 3 of mt19937, which has no streams");
    ck_assert_int_eq(rng.kind, TSR_RNG_THREEFRY);
    ck_assert_ok(tsr_rng_init(TSR_RNG_DOTNET, (uint64_t)(int64_t)INT32_MIN, 0, &rng));
    ck_assert_ok(tsr_rng_init(TSR_RNG_DOTNET, INT32_MAX, 0, &rng));
    ck_assert_int_eq(rng.kind, TSR_RNG_DOTNET);
}
END_TEST

/* The generic functions must give the same values as the functions of each generator. */
START_TEST(same_as_the_generators_own)
{
    tsr_rng rng;
    tsr_philox philox;
    tsr_mt19937 mt;
    tsr_threefry threefry;
    tsr_dotnet dotnet;
    uint8_t bytes[8];

    ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 42, 0, &rng));
    tsr__philox_init(42, 0, &philox);
    ck_assert_uint_eq(tsr_rng_next_u32(&rng), tsr__philox_next_u32(&philox));
    ck_assert_uint_eq(tsr_rng_next_u64(&rng), tsr__philox_next_u64(&philox));
    ck_assert(tsr_rng_next_double(&rng) == tsr__unit_double(tsr__philox_next_u64(&philox)));

    ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 42, 7, &rng));
    tsr__philox_init(42, 7, &philox);
    ck_assert_uint_eq(tsr_rng_next_u32(&rng), tsr__philox_next_u32(&philox));

    ck_assert_ok(tsr_rng_init(TSR_RNG_MT19937, 42, 0, &rng));
    tsr__mt19937_init(42, &mt);
    ck_assert_uint_eq(tsr_rng_next_u32(&rng), tsr__mt19937_next_u32(&mt));
    ck_assert_uint_eq(tsr_rng_next_u64(&rng), tsr__mt19937_next_u64(&mt));
    ck_assert(tsr_rng_next_double(&rng) == tsr__mt19937_next_double(&mt));

    ck_assert_ok(tsr_rng_init(TSR_RNG_THREEFRY, 42, 0, &rng));
    tsr__threefry_init(tsr_threefry_key_from_seed(42), &threefry);
    ck_assert_uint_eq(tsr_rng_next_u32(&rng), tsr__threefry_next_u32(&threefry));
    uint64_t value = (uint64_t)tsr__threefry_next_u32(&threefry) << 32;
    value |= tsr__threefry_next_u32(&threefry);
    ck_assert_uint_eq(tsr_rng_next_u64(&rng), value);
    value = (uint64_t)tsr__threefry_next_u32(&threefry) << 32;
    value |= tsr__threefry_next_u32(&threefry);
    ck_assert(tsr_rng_next_double(&rng) == tsr__unit_double(value));

    ck_assert_ok(tsr_rng_init(TSR_RNG_DOTNET, (uint64_t)-42, 0, &rng));
    tsr__dotnet_init(-42, &dotnet);
    tsr__dotnet_next_bytes(&dotnet, 4, bytes);
    ck_assert_uint_eq(tsr_rng_next_u32(&rng), bytes[0] | (uint32_t)bytes[1] << 8 |
                                                  (uint32_t)bytes[2] << 16 |
                                                  (uint32_t)bytes[3] << 24);
    tsr__dotnet_next_bytes(&dotnet, 8, bytes);
    value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | bytes[i];
    ck_assert_uint_eq(tsr_rng_next_u64(&rng), value);
    ck_assert(tsr_rng_next_double(&rng) == tsr__dotnet_next_double(&dotnet));
}
END_TEST

START_TEST(philox_words_equal_the_devices)
{
    tsr_philox rng;
    tsr__philox_init(UINT64_C(0x123456789abcdef0), UINT64_C(0xfedcba9876543210), &rng);
    for (uint64_t i = 0; i < 9; i++)
        ck_assert_uint_eq(tsr__philox_next_u32(&rng), tsr__philox_word(rng.seed, rng.stream, i));
    const uint64_t positions[] = {0, 3, 4, 5, UINT64_C(1) << 34, UINT64_MAX - 1};
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
        rng.position = positions[i];
        ck_assert_uint_eq(tsr__philox_next_u32(&rng),
                          tsr__philox_word(rng.seed, rng.stream, positions[i]));
    }
    rng.position = UINT64_MAX; /* position of the last word; the first word follows */
    ck_assert_uint_eq(tsr__philox_next_u32(&rng),
                      tsr__philox_word(rng.seed, rng.stream, UINT64_MAX));
    ck_assert_uint_eq(tsr__philox_next_u32(&rng), tsr__philox_word(rng.seed, rng.stream, 0));
}
END_TEST

START_TEST(threefry_words_are_the_hash)
{
    tsr_threefry rng;
    tsr_threefry_key key = {{3, 4}};
    tsr__threefry_init(key, &rng);
    const uint64_t pairs[] = {0, 1, UINT64_C(0x123456789), UINT64_MAX >> 1};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        uint32_t out[2];
        tsr__threefry_hash(key, (uint32_t[]){(uint32_t)(pairs[i] >> 32), (uint32_t)pairs[i]}, out);
        rng.position = 2 * pairs[i] + 1;
        ck_assert_uint_eq(tsr__threefry_next_u32(&rng), out[1]);
        rng.position = 2 * pairs[i];
        ck_assert_uint_eq(tsr__threefry_next_u32(&rng), out[0]);
        ck_assert_uint_eq(tsr__threefry_next_u32(&rng), out[1]);
    }
}
END_TEST

START_TEST(skipping_is_drawing)
{
    const tsr_rng_kind kind = kinds[_i];
    for (uint64_t skip = 0; skip < 1300; skip += 13)
        for (int before = 0; before < 3; before++) {
            tsr_rng drawn, skipped;
            ck_assert_ok(tsr_rng_init(kind, 7, 0, &drawn));
            for (int i = 0; i < before; i++)
                (void)tsr_rng_next_u32(&drawn);
            skipped = drawn;
            tsr_rng_skip(&skipped, skip);
            for (uint64_t i = 0; i < skip; i++) {
                if (kind == TSR_RNG_DOTNET)
                    (void)tsr_dotnet_next(&drawn.as.dotnet);
                else
                    (void)tsr_rng_next_u32(&drawn);
            }
            for (int i = 0; i < 5; i++)
                ck_assert(tsr_rng_next_u64(&drawn) == tsr_rng_next_u64(&skipped));
        }
}
END_TEST

START_TEST(far_skips_take_constant_time)
{
    tsr_rng a, b;
    ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 7, 0, &a));
    b = a;
    tsr_rng_skip(&a, UINT64_C(1) << 63);
    tsr_rng_skip(&a, UINT64_C(1) << 63);
    ck_assert_uint_eq(tsr_rng_next_u32(&a), tsr_rng_next_u32(&b)); /* both are back at the start */
    ck_assert_ok(tsr_rng_init(TSR_RNG_THREEFRY, 7, 0, &a));
    tsr_rng_skip(&a, UINT64_C(1) << 40);
    ck_assert_uint_eq(a.as.threefry.position, UINT64_C(1) << 40);
}
END_TEST

/* Checks that the chi-square of `n` cells is below its 99.99 % point, by Wilson and Hilferty's
 * approximation. */
static void check_uniform(const uint32_t *cells, uint32_t n, double per_cell)
{
    double sum = 0, freedom = n - 1, spread = 2 / (9 * freedom);
    for (uint32_t i = 0; i < n; i++)
        sum += (cells[i] - per_cell) * (cells[i] - per_cell) / per_cell;
    double limit = freedom * pow(1 - spread + 3.719 * sqrt(spread), 3);
    if (sum > limit)
        ck_abort_msg("chi-square of %u cells is %g, above %g", n, sum, limit);
}

START_TEST(below_is_uniform)
{
    enum { DRAWS = 1000 };
    const uint32_t sizes[] = {2, 3, 10, 64, 1000};
    static uint32_t cells[1000];
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        tsr_rng rng;
        ck_assert_ok(tsr_rng_init(kinds[_i], 11, 0, &rng));
        memset(cells, 0, sizeof cells);
        for (uint32_t i = 0; i < DRAWS * sizes[s]; i++) {
            uint64_t value = tsr_rng_below(&rng, sizes[s]);
            ck_assert(value < sizes[s]);
            cells[value]++;
        }
        check_uniform(cells, sizes[s], DRAWS);
    }
}
END_TEST

/* n is three quarters of the range of a word. If the generator did not reject words, a third of
 * the values would occur twice as often. */
START_TEST(below_is_unbiased_for_large_n)
{
    enum { THIRDS = 3, DRAWS = 100000 };
    const uint64_t sizes[] = {UINT64_C(3) << 30, UINT64_C(3) << 62, UINT64_C(3) << 31};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        tsr_rng rng;
        uint32_t cells[THIRDS] = {0};
        ck_assert_ok(tsr_rng_init(kinds[_i], 5, 0, &rng));
        for (int i = 0; i < THIRDS * DRAWS; i++) {
            uint64_t value = tsr_rng_below(&rng, sizes[s]);
            ck_assert(value < sizes[s]);
            cells[value / (sizes[s] / THIRDS)]++;
        }
        check_uniform(cells, THIRDS, DRAWS);
    }
}
END_TEST

START_TEST(below_at_the_edges)
{
    tsr_rng rng, same;
    ck_assert_ok(tsr_rng_init(kinds[_i], 5, 0, &rng));
    same = rng;
    ck_assert_uint_eq(tsr_rng_below(&rng, 0), 0);
    ck_assert_uint_eq(tsr_rng_next_u32(&rng), tsr_rng_next_u32(&same)); /* nothing was drawn */
    ck_assert_uint_eq(tsr_rng_below(&rng, 1), 0);
    (void)tsr_rng_next_u32(&same);
    ck_assert_uint_eq(tsr_rng_below(&rng, UINT64_C(1) << 32), tsr_rng_next_u32(&same));
    ck_assert_uint_eq(tsr_rng_below(&rng, UINT64_C(1) << 63), tsr_rng_next_u64(&same) << 1 >> 1);
    ck_assert_uint_le(tsr_rng_below(&rng, UINT64_MAX), UINT64_MAX - 1);
}
END_TEST

START_TEST(doubles_are_uniform)
{
    enum { CELLS = 100, DRAWS = 1000 };
    uint32_t cells[CELLS] = {0};
    tsr_rng rng;
    ck_assert_ok(tsr_rng_init(kinds[_i], 3, 0, &rng));
    for (int i = 0; i < CELLS * DRAWS; i++) {
        double value = tsr_rng_next_double(&rng);
        ck_assert(value >= 0 && value < 1);
        cells[(int)(value * CELLS)]++;
    }
    check_uniform(cells, CELLS, DRAWS);
}
END_TEST

/* Memory that a refused call must not write to. */
static struct {
    tsr_rng rng;
    tsr_rng_kind kind;
    int32_t value;
    int64_t items[4];
    tsr_threefry_key keys[4];
    float floats[4];
    uint8_t state[TSR_RNG_STATE_BYTES];
    size_t size;
} out;

/* Calls every function that returns a status, in the header's order. */
START_TEST(nulls)
{
    tsr_mt19937 mt, mt_before;
    tsr_dotnet dotnet, dotnet_before;
    const tsr_threefry_key key = {{1, 2}};
    tsr_rng rng;
    uint8_t state[TSR_RNG_STATE_BYTES];
    size_t size;
    tsr__mt19937_init(1, &mt);
    tsr__dotnet_init(1, &dotnet);
    mt_before = mt;
    dotnet_before = dotnet;
    ck_assert_ok(tsr_rng_init(TSR_RNG_PHILOX, 1, 0, &rng));
    ck_assert_ok(tsr_rng_save(&rng, sizeof state, state, &size));

    REFUSED(tsr_torch_randint(NULL, TSR_TORCH_DEFAULT, 0, 9, 4, out.items), "randint: rng");
    REFUSED(tsr_torch_randint(&mt, TSR_TORCH_DEFAULT, 0, 9, 4, NULL), "randint: out");
    REFUSED(tsr_torch_randperm(NULL, TSR_TORCH_DEFAULT, 4, out.items), "randperm: rng");
    REFUSED(tsr_torch_randperm(&mt, TSR_TORCH_DEFAULT, 4, NULL), "randperm: out");
    REFUSED(tsr_dotnet_next_range(NULL, 0, 9, &out.value), "dotnet: rng");
    REFUSED(tsr_dotnet_next_range(&dotnet, 0, 9, NULL), "dotnet: out");
    REFUSED(tsr_dotnet_shuffle(NULL, 4, out.items), "dotnet: rng");
    REFUSED(tsr_dotnet_shuffle(&dotnet, 4, NULL), "dotnet: items");
    REFUSED(tsr_threefry_split(key, 4, NULL), "threefry: out");
    REFUSED(tsr_threefry_bits(key, 4, 4, NULL), "threefry: out");
    REFUSED(tsr_threefry_uniform(key, 4, NULL), "threefry: out");
    REFUSED(tsr_threefry_randint(key, 0, 9, 4, NULL), "threefry: out");
    REFUSED(tsr_threefry_permutation(key, 4, NULL), "threefry: out");
    REFUSED(tsr_threefry_argsort_uniform(key, 4, NULL), "threefry: out");
    REFUSED(tsr_rng_kind_parse(NULL, &out.kind), "rng: name");
    REFUSED(tsr_rng_kind_parse("philox", NULL), "rng: out");
    REFUSED(tsr_rng_init(TSR_RNG_PHILOX, 1, 0, NULL), "rng: out");
    REFUSED(tsr_rng_save(NULL, sizeof out.state, out.state, &out.size), "rng: rng");
    REFUSED(tsr_rng_save(&rng, sizeof out.state, NULL, &out.size), "rng: data");
    REFUSED(tsr_rng_save(&rng, sizeof out.state, out.state, NULL), "rng: size_bytes");
    REFUSED(tsr_rng_load(NULL, size, &out.rng), "rng: data");
    REFUSED(tsr_rng_load(state, size, NULL), "rng: out");
    ck_assert_mem_eq(&mt, &mt_before, sizeof mt);
    ck_assert_mem_eq(&dotnet, &dotnet_before, sizeof dotnet);
}
END_TEST

/* If nothing is to be written, the output may be NULL. */
START_TEST(nothing_into_null)
{
    tsr_mt19937 mt;
    tsr_dotnet dotnet;
    const tsr_threefry_key key = {{1, 2}};
    tsr__mt19937_init(1, &mt);
    tsr__dotnet_init(1, &dotnet);
    ck_assert_ok(tsr_torch_randint(&mt, TSR_TORCH_DEFAULT, 0, 9, 0, NULL));
    ck_assert_ok(tsr_torch_randperm(&mt, TSR_TORCH_DEFAULT, 0, NULL));
    ck_assert_ok(tsr_dotnet_shuffle(&dotnet, 0, NULL));
    ck_assert_ok(tsr_threefry_split(key, 0, NULL));
    ck_assert_ok(tsr_threefry_bits(key, 4, 0, NULL));
    ck_assert_ok(tsr_threefry_uniform(key, 0, NULL));
    ck_assert_ok(tsr_threefry_randint(key, 0, 9, 0, NULL));
    ck_assert_ok(tsr_threefry_permutation(key, 0, NULL));
    ck_assert_ok(tsr_threefry_argsort_uniform(key, 0, NULL));
}
END_TEST

TESTS(rng)
{
    tcase_add_test(tests, names);
    tcase_add_test(tests, init_errors);
    tcase_add_test(tests, nulls);
    tcase_add_test(tests, nothing_into_null);
    tcase_add_test(tests, same_as_the_generators_own);
    tcase_add_test(tests, philox_words_equal_the_devices);
    tcase_add_test(tests, threefry_words_are_the_hash);
    tcase_add_loop_test(tests, skipping_is_drawing, 0, KINDS);
    tcase_add_test(tests, far_skips_take_constant_time);
    tcase_add_loop_test(tests, below_is_uniform, 0, KINDS);
    tcase_add_loop_test(tests, below_is_unbiased_for_large_n, 0, KINDS);
    tcase_add_loop_test(tests, below_at_the_edges, 0, KINDS);
    tcase_add_loop_test(tests, doubles_are_uniform, 0, KINDS);
}
