/* Saving and loading generators, and loading bytes that are no generator. */
#include <string.h>

#include "support/check_main.h"
#include "support/random.h"
#include "tessera/rng.h"

static const tsr_rng_kind kinds[] = {TSR_RNG_PHILOX, TSR_RNG_MT19937, TSR_RNG_DOTNET,
                                     TSR_RNG_THREEFRY};
static const size_t sizes[] = {40, 2516, 240, 32};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint8_t bytes[TSR_RNG_STATE_BYTES + 8];

static size_t saved(tsr_rng_kind kind, int draws, tsr_rng *rng)
{
    size_t size = 0;
    ck_assert_ok(tsr_rng_init(kind, 99, 0, rng));
    for (int i = 0; i < draws; i++)
        (void)tsr_rng_next_u32(rng);
    ck_assert_ok(tsr_rng_save(rng, TSR_RNG_STATE_BYTES, bytes, &size));
    return size;
}

START_TEST(continues_where_it_was_saved)
{
    const int draws[] = {0, 1, 2, 5, 55, 623, 624, 625};
    for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
        tsr_rng rng, loaded;
        size_t size = saved(kinds[_i], draws[i], &rng);
        ck_assert_uint_eq(size, sizes[_i]);
        ck_assert_ok(tsr_rng_load(bytes, size, &loaded));
        for (int j = 0; j < 1300; j++)
            ck_assert(tsr_rng_next_u32(&rng) == tsr_rng_next_u32(&loaded));
    }
}
END_TEST

/* A state must have the same bytes on every machine and in every later release of version 1. */
START_TEST(format_is_fixed)
{
    /* version, kind, seed, stream, position */
    static const uint8_t philox[32] = {'T', 'S', 'R', 'G', [4] = 1, [8] = 99, [24] = 3};
    tsr_rng rng;
    size_t size = saved(TSR_RNG_PHILOX, 3, &rng);
    ck_assert_uint_eq(size, sizeof philox + 8);
    ck_assert_mem_eq(bytes, philox, 32);
    uint64_t checksum = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < 32; i++)
        checksum = (checksum ^ philox[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 8; i++)
        ck_assert_uint_eq(bytes[32 + i], checksum >> (8 * i) & 0xff);
}
END_TEST

START_TEST(room_is_checked)
{
    tsr_rng rng;
    size_t size = 7;
    ck_assert_ok(tsr_rng_init(TSR_RNG_THREEFRY, 1, 0, &rng));
    memset(bytes, 0xa5, sizeof bytes);
    ck_assert_error(tsr_rng_save(&rng, 31, bytes, &size), TSR_ERR_INVALID,
                    "rng: the state takes 32 bytes, there is room for 31");
    ck_assert_uint_eq(size, 7);
    ck_assert_uint_eq(bytes[0], 0xa5);
    ck_assert_ok(tsr_rng_save(&rng, 32, bytes, &size));
    ck_assert_uint_eq(bytes[32], 0xa5);
    rng.kind = (tsr_rng_kind)7;
    ck_assert_error(tsr_rng_save(&rng, 32, bytes, &size), TSR_ERR_INVALID,
                    "rng: 7 is no kind of generator");
}
END_TEST

START_TEST(damaged_generators_are_not_saved)
{
    tsr_rng rng;
    size_t size;
    ck_assert_ok(tsr_rng_init(TSR_RNG_MT19937, 1, 0, &rng));
    rng.as.mt19937.next = 625;
    ck_assert_error(tsr_rng_save(&rng, sizeof bytes, bytes, &size), TSR_ERR_INVALID,
                    "rng: the mt19937 generator is damaged: the next word is beyond the last");
    memset(&rng.as, 0, sizeof rng.as);
    ck_assert_error(tsr_rng_save(&rng, sizeof bytes, bytes, &size), TSR_ERR_INVALID,
                    "rng: the mt19937 generator is damaged: all words are zero");
    ck_assert_ok(tsr_rng_init(TSR_RNG_DOTNET, 1, 0, &rng));
    tsr_dotnet whole = rng.as.dotnet;
    rng.as.dotnet.next = 56;
    ck_assert_error(tsr_rng_save(&rng, sizeof bytes, bytes, &size), TSR_ERR_INVALID,
                    "rng: the dotnet generator is damaged: the next entry is beyond the last");
    rng.as.dotnet = whole;
    rng.as.dotnet.other++;
    ck_assert_error(tsr_rng_save(&rng, sizeof bytes, bytes, &size), TSR_ERR_INVALID,
                    "rng: the dotnet generator is damaged: the two indices do not belong together");
    rng.as.dotnet = whole;
    rng.as.dotnet.table[55] = -2;
    ck_assert_error(tsr_rng_save(&rng, sizeof bytes, bytes, &size), TSR_ERR_INVALID,
                    "rng: the dotnet generator is damaged: an entry of the table is negative");
}
END_TEST

/* Outputs that a rejected call must not change. */
static void check_rejected(size_t size, const char *text)
{
    tsr_rng out, before;
    memset(&out, 0x5a, sizeof out);
    before = out;
    ck_assert_error(tsr_rng_load(bytes, size, &out), TSR_ERR_INVALID, text);
    ck_assert_mem_eq(&out, &before, sizeof out);
}

START_TEST(rejections_name_offset_and_reason)
{
    tsr_rng rng;
    size_t size = saved(TSR_RNG_PHILOX, 3, &rng);
    check_rejected(0, "rng: saved state: offset 0: 0 bytes are too few for a header of 8");
    check_rejected(7, "rng: saved state: offset 0: 7 bytes are too few for a header of 8");
    check_rejected(39, "rng: saved state: offset 8: a philox generator takes 40 bytes, not 39");
    check_rejected(41, "rng: saved state: offset 8: a philox generator takes 40 bytes, not 41");
    bytes[3] = 'X';
    check_rejected(size, "rng: saved state: offset 0: it does not start with \"TSRG\"");
    bytes[3] = 'G';
    bytes[5] = 1;
    check_rejected(size, "rng: saved state: offset 4: version 257 is not 1");
    bytes[5] = 0;
    bytes[6] = 4;
    check_rejected(size, "rng: saved state: offset 6: 4 is no kind of generator");
    bytes[6] = 0;
    memset(bytes + 32, 0, 8);
    ck_assert_int_eq(tsr_rng_load(bytes, size, &rng), TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(
        strstr(tsr_last_error(), "rng: saved state: offset 32: checksum 0000000000000000 is not "));
}
END_TEST

/* Writes the checksum that fits the bytes, so that only the state is wrong. */
static void reseal(size_t size)
{
    uint64_t checksum = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size - 8; i++)
        checksum = (checksum ^ bytes[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < 8; i++)
        bytes[size - 8 + (size_t)i] = (uint8_t)(checksum >> (8 * i));
}

START_TEST(impossible_states_are_rejected)
{
    tsr_rng rng;
    size_t size = saved(TSR_RNG_MT19937, 3, &rng);
    bytes[8 + 2496] = 0x71; /* 0x271 = 625 */
    bytes[8 + 2497] = 2;
    reseal(size);
    check_rejected(size, "rng: saved state: offset 8: the next word is beyond the last");
    memset(bytes + 8, 0, 2500);
    reseal(size);
    check_rejected(size, "rng: saved state: offset 8: all words are zero");

    size = saved(TSR_RNG_DOTNET, 3, &rng);
    bytes[8 + 220] = 56;
    reseal(size);
    check_rejected(size, "rng: saved state: offset 8: the next entry is beyond the last");
    memset(bytes + 8 + 220, 0xff, 4);
    reseal(size);
    check_rejected(size, "rng: saved state: offset 8: the next entry is beyond the last");
    size = saved(TSR_RNG_DOTNET, 3, &rng);
    memset(bytes + 8, 0xf0, 4);
    reseal(size);
    check_rejected(size, "rng: saved state: offset 8: an entry of the table is negative");
}
END_TEST

START_TEST(every_changed_byte_is_noticed)
{
    tsr_rng rng;
    size_t size = saved(kinds[_i], 3, &rng);
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] = (uint8_t)(bytes[i] ^ 1u << bit);
            ck_assert(tsr_rng_load(bytes, size, &rng) == TSR_ERR_INVALID);
            bytes[i] = (uint8_t)(bytes[i] ^ 1u << bit);
        }
    for (size_t shorter = 0; shorter < size; shorter++)
        ck_assert(tsr_rng_load(bytes, shorter, &rng) == TSR_ERR_INVALID);
    ck_assert_ok(tsr_rng_load(bytes, size, &rng));
}
END_TEST

/* Random bytes with a valid header and checksum must be rejected or give a generator that works. */
START_TEST(noise_does_no_harm)
{
    uint64_t state = 1;
    for (int round = 0; round < 2000; round++) {
        tsr_rng rng;
        size_t kind = (size_t)round % KINDS, size = saved(kinds[kind], 0, &rng);
        for (size_t i = 8; i < size; i++)
            bytes[i] = (uint8_t)random_next(&state);
        reseal(size);
        if (tsr_rng_load(bytes, size, &rng) == TSR_OK)
            for (int i = 0; i < 100; i++)
                ck_assert(tsr_rng_below(&rng, 10) < 10);
    }
}
END_TEST

TESTS(rng_state)
{
    tcase_add_loop_test(tests, continues_where_it_was_saved, 0, KINDS);
    tcase_add_test(tests, format_is_fixed);
    tcase_add_test(tests, room_is_checked);
    tcase_add_test(tests, damaged_generators_are_not_saved);
    tcase_add_test(tests, rejections_name_offset_and_reason);
    tcase_add_test(tests, impossible_states_are_rejected);
    tcase_add_loop_test(tests, every_changed_byte_is_noticed, 0, KINDS);
    tcase_add_test(tests, noise_does_no_harm);
}
