/* Tests the parts of a tuning (kernels that measurements chose) that need no device: the classes
 * of similar products that share a choice, and the encoded tables of choices. */
#include <string.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "gpu/matmul/tuning/shape_class.h"
#include "gpu/matmul/tuning/table.h"
#include "gpu/matmul/tuning/tuning.h"
#include "support/check_main.h"
#include "support/gpu.h"

/* Classes of products -------------------------------------------------------------------------- */

typedef struct product {
    int64_t m, k, n;
    tsr_dtype dtype;
    bool transpose_b;
    float alpha;
} product;

static tsr__matmul_problem problem_of(product p)
{
    tsr_layout y, a, b;
    tsr__matmul_problem out;
    tsr_dtype dtype = p.dtype ? p.dtype : TSR_F32;
    ck_assert_ok(tsr_layout_init(dtype, 2, (int64_t[]){p.m, p.n}, &y));
    ck_assert_ok(tsr_layout_init(dtype, 2, (int64_t[]){p.m, p.k}, &a));
    ck_assert_ok(tsr_layout_init(
        dtype, 2, p.transpose_b ? (int64_t[]){p.n, p.k} : (int64_t[]){p.k, p.n}, &b));
    ck_assert_ok(tsr__matmul_problem_init(
        &y, &a, &b, NULL, tsr_matmul_params(.transpose_b = p.transpose_b, .alpha = p.alpha), &out));
    return out;
}

static uint64_t class_of(product p)
{
    tsr__matmul_problem problem = problem_of(p);
    tsr__shape_class shape_class, again;
    ck_assert(tsr__shape_class_of(&problem, &shape_class));
    uint64_t packed = tsr__shape_class_pack(&shape_class);
    ck_assert_uint_gt(packed, 0);
    ck_assert(tsr__shape_class_unpack(packed, &again));
    ck_assert_uint_eq(tsr__shape_class_pack(&again), packed);
    return packed;
}

START_TEST(sizes_up_to_a_power_of_two_have_one_class)
{
    product p = {64, 1024, 512, TSR_F32, true, 0};
    uint64_t whole = class_of(p);
    ck_assert_uint_eq(class_of((product){33, 516, 257, TSR_F32, true, 0}), whole);
    ck_assert_uint_eq(class_of((product){40, 1000, 300, TSR_F32, true, 0}), whole);
    /* These sizes are just beyond both ends of the class. */
    const product others[] = {
        {65, 1024, 512, TSR_F32, true, 0}, {32, 1024, 512, TSR_F32, true, 0},
        {64, 1028, 512, TSR_F32, true, 0}, {64, 512, 512, TSR_F32, true, 0},
        {64, 1024, 513, TSR_F32, true, 0}, {64, 1024, 256, TSR_F32, true, 0},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        ck_assert_uint_ne(class_of(others[i]), whole);
}
END_TEST

START_TEST(classes_differ_by_what_affects_speed)
{
    product p = {64, 1024, 512, TSR_F32, true, 0};
    uint64_t whole = class_of(p);
    ck_assert_uint_ne(class_of((product){64, 1024, 512, TSR_F16, true, 0}), whole);
    ck_assert_uint_ne(class_of((product){64, 1024, 512, TSR_F32, false, 0}), whole);
    /* A k that is no multiple of a vector makes another class, and so does an epilogue. */
    ck_assert_uint_ne(class_of((product){64, 1023, 512, TSR_F32, true, 0}), whole);
    ck_assert_uint_ne(class_of((product){64, 1024, 512, TSR_F32, true, 0.5f}), whole);
    ck_assert_uint_eq(class_of((product){64, 1024, 512, TSR_F32, true, 1}), whole);

    tsr__shape_class shape_class;
    tsr__matmul_problem nothing = problem_of((product){3, 0, 5, TSR_F32, true, 0});
    ck_assert(!tsr__shape_class_of(&nothing, &shape_class));
}
END_TEST

START_TEST(numbers_without_a_class)
{
    uint64_t good = class_of((product){64, 1024, 512, TSR_F32, true, 0});
    tsr__shape_class shape_class = {.m = 77};
    const uint64_t bad[] = {
        0,
        UINT64_MAX,
        good | UINT64_C(1) << 63,
        good | UINT64_C(0x3f) << 18,  /* m of 2^63 */
        good | UINT64_C(0x7) << 26,   /* an invalid form */
        good & ~(UINT64_C(0xf) << 32) /* y has no dtype */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_msg(!tsr__shape_class_unpack(bad[i], &shape_class), "%016llx",
                      (unsigned long long)bad[i]);
        ck_assert_uint_eq(shape_class.m, 77);
    }
    /* The class that decoding gives for a number must encode to the same number. */
    gpu_random random = {5};
    int taken = 0;
    for (int i = 0; i < 100000; i++) {
        uint64_t number = i % 2 ? gpu_random_u64(&random) >> (gpu_random_u64(&random) % 64)
                                : good ^ UINT64_C(1) << (gpu_random_u64(&random) % 64);
        if (!tsr__shape_class_unpack(number, &shape_class))
            continue;
        ck_assert(tsr__shape_class_pack(&shape_class) == number);
        taken++;
    }
    ck_assert_int_gt(taken, 1000);
}
END_TEST

/* Tables of choices ---------------------------------------------------------------------------- */

static const tsr__matmul_config *any_config(uint64_t number)
{
    int count = 0;
    while (tsr__matmul_config_at(count))
        count++;
    return tsr__matmul_config_at((int)(number % (uint64_t)count));
}

/* Makes a table with entries of different classes, which are not added in order. */
static tsr__tuned_table made_table(int count)
{
    tsr__tuned_table table = {0};
    for (int i = 0; i < count; i++) {
        int bits = i * 7 % count;
        product p = {INT64_C(1) << (bits % 12),
                     INT64_C(4) << (bits / 12 % 12),
                     INT64_C(64) << (bits / 144),
                     TSR_BF16,
                     true,
                     0};
        ck_assert_ok(tsr__tuned_table_set(
            &table, &(tsr__tuned_entry){class_of(p), any_config((uint64_t)i), (uint32_t)i % 65}));
    }
    return table;
}

static void check_same(const tsr__tuned_table *a, const tsr__tuned_table *b)
{
    ck_assert_uint_eq(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        ck_assert_uint_eq(a->entries[i].shape_class, b->entries[i].shape_class);
        ck_assert_ptr_eq(a->entries[i].config, b->entries[i].config);
        ck_assert_uint_eq(a->entries[i].splits, b->entries[i].splits);
    }
}

START_TEST(tables_are_decoded_unchanged)
{
    for (int count = 0; count <= 100; count += count < 3 ? 1 : 97) {
        tsr__tuned_table table = made_table(count), again;
        ck_assert_uint_eq(table.count, (size_t)count);
        for (size_t i = 1; i < table.count; i++)
            ck_assert_uint_lt(table.entries[i - 1].shape_class, table.entries[i].shape_class);
        void *data;
        size_t bytes;
        ck_assert_ok(tsr__tuned_table_encode(&table, &data, &bytes));
        ck_assert_ok(tsr__tuned_table_decode(data, bytes, &again));
        check_same(&table, &again);
        for (size_t i = 0; i < table.count; i++) {
            const tsr__tuned_entry *found =
                tsr__tuned_table_find(&again, table.entries[i].shape_class);
            ck_assert_ptr_nonnull(found);
            ck_assert_ptr_eq(found->config, table.entries[i].config);
            ck_assert_ptr_null(
                tsr__tuned_table_find(&again, table.entries[i].shape_class ^ UINT64_C(1) << 50));
        }
        tsr__free(data);
        tsr__tuned_table_finish(&table);
        tsr__tuned_table_finish(&again);
    }
}
END_TEST

START_TEST(later_entries_replace_and_cancel)
{
    tsr__tuned_table table = made_table(10), changes = {0}, again;
    uint64_t third = table.entries[3].shape_class, fifth = table.entries[5].shape_class;
    tsr__tuned_entry replaced = {third, any_config(1), 7}, back = {fifth, NULL, 0};
    ck_assert_ok(tsr__tuned_table_set(&changes, &replaced));
    ck_assert_ok(tsr__tuned_table_set(&changes, &back));
    ck_assert_ok(tsr__tuned_table_merge(&table, &changes));
    ck_assert_uint_eq(table.count, 10);
    ck_assert_uint_eq(tsr__tuned_table_find(&table, third)->splits, 7);
    ck_assert_ptr_null(tsr__tuned_table_find(&table, fifth)->config);
    /* An entry whose choice was cancelled is not stored. */
    void *data;
    size_t bytes;
    ck_assert_ok(tsr__tuned_table_encode(&table, &data, &bytes));
    ck_assert_ok(tsr__tuned_table_decode(data, bytes, &again));
    ck_assert_uint_eq(again.count, 9);
    ck_assert_ptr_null(tsr__tuned_table_find(&again, fifth));
    tsr__free(data);
    tsr__tuned_table_finish(&again);
    tsr__tuned_table_finish(&table);
    tsr__tuned_table_finish(&changes);
}
END_TEST

START_TEST(a_table_has_a_limit)
{
    tsr__tuned_table table = {0};
    for (uint64_t i = 1; i <= TSR__MAX_TUNED; i++)
        ck_assert(tsr__tuned_table_set(&table, &(tsr__tuned_entry){i, any_config(i), 0}) == TSR_OK);
    ck_assert_error(
        tsr__tuned_table_set(&table, &(tsr__tuned_entry){TSR__MAX_TUNED + 1, any_config(1), 0}),
        TSR_ERR_OVERFLOW, "tuning: there are 4096 classes of products already");
    ck_assert_uint_eq(table.count, TSR__MAX_TUNED);
    tsr__tuned_table_finish(&table);
}
END_TEST

START_TEST(names_of_configurations_fit)
{
    for (int i = 0; tsr__matmul_config_at(i); i++)
        ck_assert_uint_lt(strlen(tsr__matmul_config_at(i)->name), TSR__TUNING_KERNEL_SIZE);
}
END_TEST

#define RECORD 40 /* bytes of a record: class, name (24), splits, zero */

static void refuses(const void *data, size_t bytes, const char *text)
{
    tsr__tuned_table table = {.count = 77};
    ck_assert_error(tsr__tuned_table_decode(data, bytes, &table), TSR_ERR_INVALID, text);
    ck_assert_uint_eq(table.count, 77);
}

START_TEST(hostile_tables_are_refused)
{
    tsr__tuned_table table = made_table(3), again;
    uint8_t data[3 * RECORD], saved[sizeof data];
    void *encoded;
    size_t bytes;
    ck_assert_ok(tsr__tuned_table_encode(&table, &encoded, &bytes));
    ck_assert_uint_eq(bytes, sizeof saved);
    memcpy(data, encoded, sizeof data);
    memcpy(saved, encoded, sizeof saved);
    tsr__free(encoded);
    for (size_t cut = 0; cut < bytes; cut++)
        if (cut % RECORD != 0)
            ck_assert(tsr__tuned_table_decode(data, cut, &again) == TSR_ERR_INVALID);
    refuses(data, 39,
            "tuning: the table has 39 bytes; at most 4096 records of 40 bytes are expected");
    /* None of these tables is accepted, not even in part. */
    refuses(data, (size_t)RECORD * 4097,
            "tuning: the table has 163880 bytes; at most 4096 records of 40 bytes are expected");
    memcpy(data, data + RECORD, RECORD);
    refuses(data, bytes, "tuning: record 1 is out of order");
    memcpy(data, saved, bytes);
    memset(data, 0, 8);
    refuses(data, bytes, "tuning: record 0 is out of order");
    memset(data, 0xff, 8);
    refuses(data, RECORD, "tuning: record 0: ffffffffffffffff is not a class of products");
    memcpy(data, saved, bytes);
    memset(data + RECORD + 8, 'x', 24);
    refuses(data, bytes, "tuning: record 1: the kernel's name is damaged");
    memset(data + RECORD + 8, 0, 24);
    refuses(data, bytes, "tuning: record 1: the kernel's name is damaged");
    memcpy(data, saved, bytes);
    data[RECORD + 8 + 23] = 'x'; /* after the end of the name */
    refuses(data, bytes, "tuning: record 1: the kernel's name is damaged");
    memcpy(data, saved, bytes);
    data[2 * RECORD + 32] = 65;
    refuses(data, bytes, "tuning: record 2: splits is 65; at most 64 are possible");
    memcpy(data, saved, bytes);
    data[2 * RECORD + 36] = 1;
    ck_assert(tsr__tuned_table_decode(data, bytes, &again) == TSR_ERR_INVALID);
    /* If this build has no kernel with the name in an entry, the entry is skipped, and the
     * others are kept. */
    memcpy(data, saved, bytes);
    memcpy(data + RECORD + 8, "no-such-kernel\0\0\0\0\0\0\0\0\0", 24);
    ck_assert_ok(tsr__tuned_table_decode(data, bytes, &again));
    ck_assert_uint_eq(again.count, 2);
    tsr__tuned_table_finish(&again);
    tsr__tuned_table_finish(&table);
}
END_TEST

START_TEST(random_changes_are_safe)
{
    tsr__tuned_table table = made_table(20), again;
    gpu_random random = {9};
    void *data;
    size_t bytes;
    int accepted = 0;
    ck_assert_ok(tsr__tuned_table_encode(&table, &data, &bytes));
    for (int i = 0; i < 20000; i++) {
        size_t at = (size_t)(gpu_random_u64(&random) % bytes);
        uint8_t *byte = (uint8_t *)data + at, was = *byte;
        *byte ^= (uint8_t)(1u << (gpu_random_u64(&random) % 8));
        if (tsr__tuned_table_decode(data, bytes, &again) == TSR_OK) {
            for (size_t j = 0; j < again.count; j++)
                ck_assert(again.entries[j].config &&
                          again.entries[j].splits <= TSR__TUNING_MAX_SPLITS);
            tsr__tuned_table_finish(&again);
            accepted++;
        }
        *byte = was;
    }
    ck_assert_int_gt(accepted, 0); /* some changes give another valid record */
    tsr__free(data);
    tsr__tuned_table_finish(&table);
}
END_TEST

START_TEST(allocation_failures)
{
    tsr__tuned_table table = made_table(5), again = {.count = 77};
    void *data, *none = &table;
    size_t bytes, none_bytes = 77;
    ck_assert_ok(tsr__tuned_table_encode(&table, &data, &bytes));
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    ck_assert(tsr__tuned_table_encode(&table, &none, &none_bytes) == TSR_ERR_NO_MEMORY);
    ck_assert(none == &table && none_bytes == 77);
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    ck_assert(tsr__tuned_table_decode(data, bytes, &again) == TSR_ERR_NO_MEMORY);
    ck_assert_uint_eq(again.count, 77);
    tsr__fault_disarm();
    tsr__free(data);
    tsr__tuned_table_finish(&table);
}
END_TEST

TESTS(tuned_tables)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, sizes_up_to_a_power_of_two_have_one_class);
    tcase_add_test(tests, classes_differ_by_what_affects_speed);
    tcase_add_test(tests, numbers_without_a_class);
    tcase_add_test(tests, tables_are_decoded_unchanged);
    tcase_add_test(tests, later_entries_replace_and_cancel);
    tcase_add_test(tests, a_table_has_a_limit);
    tcase_add_test(tests, names_of_configurations_fit);
    tcase_add_test(tests, hostile_tables_are_refused);
    tcase_add_test(tests, random_changes_are_safe);
    tcase_add_test(tests, allocation_failures);
}
