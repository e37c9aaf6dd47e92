/* Tests CRC-32C against the examples of RFC 3720, and the computation of a text's checksum from
 * the checksums of its parts. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/philox.h"
#include "support/check_main.h"

START_TEST(examples_of_the_standard)
{
    uint8_t data[32];
    ck_assert_uint_eq(tsr__crc32c("123456789", 9), 0xe3069283);
    ck_assert_uint_eq(tsr__crc32c("", 0), 0);
    memset(data, 0, sizeof data);
    ck_assert_uint_eq(tsr__crc32c(data, 32), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    ck_assert_uint_eq(tsr__crc32c(data, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        data[i] = (uint8_t)i;
    ck_assert_uint_eq(tsr__crc32c(data, 32), 0x46dd794e);
}
END_TEST

static void fill(uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)tsr__philox_word(1, 2, i);
}

START_TEST(tables_and_instruction_agree)
{
    uint8_t data[300];
    fill(data, sizeof data);
    for (size_t start = 0; start < 9; start++)
        for (size_t size = 0; start + size <= sizeof data; size++)
            ck_assert_uint_eq(tsr__crc32c_state((uint32_t)size, data + start, size),
                              tsr__crc32c_state_by_tables((uint32_t)size, data + start, size));
}
END_TEST

START_TEST(parts_combine)
{
    uint8_t data[1000];
    fill(data, sizeof data);
    const uint32_t whole = tsr__crc32c(data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += 7) {
        const uint32_t first = tsr__crc32c_state(0, data, cut);
        const uint32_t second = tsr__crc32c_state(0, data + cut, sizeof data - cut);
        const uint32_t state = tsr__crc32c_shift(first, sizeof data - cut) ^ second;
        ck_assert_uint_eq(tsr__crc32c_of_state(state, sizeof data), whole);
    }
}
END_TEST

START_TEST(shifts_append_zeros)
{
    static const uint8_t zeros[5000];
    for (size_t size = 0; size < sizeof zeros; size += 13)
        ck_assert_uint_eq(tsr__crc32c_shift(0x12345678, size),
                          tsr__crc32c_state(0x12345678, zeros, size));
    /* The checksum of a text can be shifted past more bytes in several steps, even past more
     * bytes than memory can hold. */
    ck_assert_uint_eq(
        tsr__crc32c_shift(tsr__crc32c_shift(99, UINT64_C(1) << 62), UINT64_C(1) << 62),
        tsr__crc32c_shift(99, UINT64_C(1) << 63));
}
END_TEST

TESTS(crc32c)
{
    tcase_add_test(tests, examples_of_the_standard);
    tcase_add_test(tests, tables_and_instruction_agree);
    tcase_add_test(tests, parts_combine);
    tcase_add_test(tests, shifts_append_zeros);
}
