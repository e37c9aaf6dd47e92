/* Tests the table of chips, whose lines give the tiles and tunings for ranges of device numbers:
 * its ranges, which of its lines a device gets, and tunings that users contributed. */
#include <string.h>

#include "base/fault.h"
#include "gpu/matmul/chip_tiles.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/tuning/contributed.h"
#include "gpu/matmul/tuning/shape_class.h"
#include "gpu/matmul/tuning/tuning.h"
#include "support/check_main.h"
#include "support/gpu.h"

static const char *chip_of(uint32_t vendor_id, uint32_t device_id, uint32_t subgroup_size_min)
{
    const tsr__matmul_device device = {
        .vendor_id = vendor_id, .device_id = device_id, .subgroup_size_min = subgroup_size_min};
    return tsr__chip_of(&device)->name;
}

START_TEST(devices_get_their_lines)
{
    ck_assert_str_eq(chip_of(0x10de, 0x2330, 32), "NVIDIA");
    ck_assert_str_eq(chip_of(0x10de, 0x2684, 32), "NVIDIA Ada");
    const tsr__matmul_device nvk = {.vendor_id = 0x10de, .device_id = 0x2684, .nvk = true};
    ck_assert_str_eq(tsr__chip_of(&nvk)->name, "NVIDIA with NVK");
    ck_assert_int_eq(tsr__chip_of(&nvk)->coopmat_tiles->config, TSR__MATMUL_COOPMAT_XL2);
    ck_assert_str_eq(chip_of(0x10de, 0x2901, 32), "NVIDIA");
    ck_assert_str_eq(chip_of(0x10de, 0x2b85, 32), "NVIDIA Blackwell for GeForce");
    ck_assert_str_eq(chip_of(0x1002, 0x73bf, 32), "AMD RDNA");
    ck_assert_str_eq(chip_of(0x1002, 0x67df, 64), "AMD GCN");
    ck_assert_str_eq(chip_of(0x8086, 0x56a0, 8), "Intel Xe");
    ck_assert_str_eq(chip_of(0x8086, 0xe202, 16), "Intel Xe2");
    ck_assert_str_eq(chip_of(0x106b, 1, 32), "others");
    ck_assert_str_eq(chip_of(0, 0, 0), "others");
    ck_assert_str_eq(chip_of(UINT32_MAX, UINT32_MAX, UINT32_MAX), "others");
}
END_TEST

static void list_is_sound(const char *chip, const tsr__chip_tile *tiles)
{
    ck_assert_ptr_nonnull(tiles);
    for (const tsr__chip_tile *tile = tiles; tile->config != TSR__MATMUL_GPU_CONFIGS; tile++) {
        ck_assert_int_lt(tile->config, TSR__MATMUL_GPU_CONFIGS);
        const tsr__matmul_config *config = tsr__matmul_config_at((int)tile->config);
        /* The list must begin with the largest tile, because the first tile that suits is
         * chosen: smaller tiles behind a larger one only get products for which the larger one
         * does not suit. */
        if (tile > tiles) {
            const tsr__matmul_config *before = tsr__matmul_config_at((int)tile[-1].config);
            ck_assert_msg(config->bm * config->bn <= before->bm * before->bn,
                          "%s: %s is larger than %s", chip, config->name, before->name);
        }
    }
}

START_TEST(lines_are_sound)
{
    const tsr__chip *chip;
    for (int i = 0; (chip = tsr__chip_at(i)) != NULL; i++) {
        ck_assert_uint_gt(strlen(chip->name), 0);
        ck_assert(chip->last_device == 0 || chip->first_device <= chip->last_device);
        ck_assert(chip->last_subgroup == 0 || chip->first_subgroup <= chip->last_subgroup);
        ck_assert_msg(chip->first_device == 0 || chip->vendor_id != 0,
                      "%s: device ids without a vendor", chip->name);
        ck_assert_uint_gt(chip->processors, 0);
        list_is_sound(chip->name, chip->tiles);
        list_is_sound(chip->name, chip->pair_tiles);
        list_is_sound(chip->name, chip->coopmat_tiles);
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(chip->name, tsr__chip_at(j)->name);
        for (int line = 0; line < chip->tuning_count; line++) {
            const tsr__chip_tuning *t = &chip->tuning[line];
            ck_assert_int_lt(t->config, TSR__MATMUL_GPU_CONFIGS);
            ck_assert(t->m > 0 && t->k > 0 && t->n > 0 && t->batch >= 0);
            ck_assert_uint_le(t->splits, TSR__TUNING_MAX_SPLITS);
        }
    }
    ck_assert_ptr_null(tsr__chip_at(-1));
}
END_TEST

static uint32_t last_of(uint32_t last)
{
    return last > 0 ? last : UINT32_MAX;
}

/* Returns whether every device that fits `inner` also fits `outer`. */
static bool covers(const tsr__chip *outer, const tsr__chip *inner)
{
    return (outer->vendor_id == 0 || outer->vendor_id == inner->vendor_id) &&
           outer->first_device <= inner->first_device &&
           last_of(outer->last_device) >= last_of(inner->last_device) &&
           outer->first_subgroup <= inner->first_subgroup &&
           last_of(outer->last_subgroup) >= last_of(inner->last_subgroup);
}

static bool overlap(const tsr__chip *a, const tsr__chip *b)
{
    return (a->vendor_id == 0 || b->vendor_id == 0 || a->vendor_id == b->vendor_id) &&
           a->first_device <= last_of(b->last_device) &&
           b->first_device <= last_of(a->last_device) &&
           a->first_subgroup <= last_of(b->last_subgroup) &&
           b->first_subgroup <= last_of(a->last_subgroup);
}

/* If two lines fit the same device, the first one must fit fewer devices, or only one driver. Then
 * every line can be reached, and the order of other lines does not matter. */
START_TEST(lines_that_overlap_are_nested)
{
    const tsr__chip *first, *second;
    for (int i = 0; (first = tsr__chip_at(i)) != NULL; i++)
        for (int j = i + 1; (second = tsr__chip_at(j)) != NULL; j++)
            ck_assert_msg(!overlap(first, second) || (first->nvk && !second->nvk) ||
                              (covers(second, first) && !covers(first, second)),
                          "%s and %s overlap", first->name, second->name);
}
END_TEST

START_TEST(fewer_processors_need_fewer_tiles)
{
    const tsr__chip chip = {.processors = 80};
    tsr__matmul_device device = {.processors = 0};
    ck_assert_uint_eq(tsr__chip_enough(&chip, &device, 128), 128); /* the number is unknown */
    device.processors = 200;
    ck_assert_uint_eq(tsr__chip_enough(&chip, &device, 128), 128);
    device.processors = 80;
    ck_assert_uint_eq(tsr__chip_enough(&chip, &device, 128), 128);
    device.processors = 8;
    ck_assert_uint_eq(tsr__chip_enough(&chip, &device, 128), 13);
    device.processors = 1;
    ck_assert_uint_eq(tsr__chip_enough(&chip, &device, 128), 2);
    ck_assert_uint_eq(tsr__chip_enough(&chip, &device, 0), 0);
}
END_TEST

START_TEST(ends_of_ranges)
{
    const tsr__chip chip = {.vendor_id = 7,
                            .first_device = 10,
                            .last_device = 20,
                            .first_subgroup = 8,
                            .last_subgroup = 16};
    ck_assert(tsr__chip_fits(&chip, 7, 10, 8));
    ck_assert(tsr__chip_fits(&chip, 7, 20, 16));
    ck_assert(!tsr__chip_fits(&chip, 8, 10, 8));
    ck_assert(!tsr__chip_fits(&chip, 7, 9, 8));
    ck_assert(!tsr__chip_fits(&chip, 7, 21, 8));
    ck_assert(!tsr__chip_fits(&chip, 7, 10, 7));
    ck_assert(!tsr__chip_fits(&chip, 7, 10, 17));
}
END_TEST

/* Contributed tunings -------------------------------------------------------------------------- */

static const tsr__chip_tuning lines[] = {
    /* in the form that files of contributed tunings have */
    {TSR_F32, true, false, 0, 512, 1024, 4096, TSR__MATMUL_TILED_64X128, 2},
    {TSR_F16, false, true, 3, 64, 64, 64, TSR__MATMUL_TILED_M, 0},
};
static const tsr__chip invented = {.name = "invented", .tuning = lines, .tuning_count = 2};

static const tsr__tuned_entry *entry_of(const tsr__tuned_table *table, tsr_dtype dtype,
                                        bool transposed, int64_t batch, int64_t m, int64_t k,
                                        int64_t n, float alpha)
{
    const int64_t y_shape[] = {batch, m, n}, a_shape[] = {batch, m, k};
    const int64_t b_shape[] = {batch, transposed ? n : k, transposed ? k : n};
    const int skip = batch > 0 ? 0 : 1;
    tsr_layout y, a, b;
    tsr__matmul_problem problem;
    tsr__shape_class shape_class;
    ck_assert_ok(tsr_layout_init(dtype, 3 - skip, y_shape + skip, &y));
    ck_assert_ok(tsr_layout_init(dtype, 3 - skip, a_shape + skip, &a));
    ck_assert_ok(tsr_layout_init(dtype, 3 - skip, b_shape + skip, &b));
    ck_assert_ok(tsr__matmul_problem_init(
        &y, &a, &b, NULL, tsr_matmul_params(.transpose_b = transposed, .alpha = alpha), &problem));
    ck_assert(tsr__shape_class_of(&problem, &shape_class));
    return tsr__tuned_table_find(table, tsr__shape_class_pack(&shape_class));
}

START_TEST(contributed_tunings_become_entries)
{
    tsr__tuned_table table = {0};
    ck_assert_ok(tsr__contributed_add(&invented, &table));
    ck_assert_int_eq(tsr__tuned_table_choices(&table), 3);
    const tsr__tuned_entry *wide = entry_of(&table, TSR_F32, true, 0, 500, 1000, 4000, 0);
    ck_assert_ptr_nonnull(wide);
    ck_assert_str_eq(wide->config->name, "tiled-64x128");
    ck_assert_uint_eq(wide->splits, 2);
    /* A tuning is used for products with an epilogue only if it was measured with one. */
    ck_assert_ptr_null(entry_of(&table, TSR_F32, true, 0, 512, 1024, 4096, 2));
    ck_assert_ptr_nonnull(entry_of(&table, TSR_F16, false, 3, 64, 64, 64, 0));
    ck_assert_ptr_nonnull(entry_of(&table, TSR_F16, false, 3, 64, 64, 64, 2));
    ck_assert_ptr_null(entry_of(&table, TSR_F16, true, 3, 64, 64, 64, 0));
    ck_assert_ptr_null(entry_of(&table, TSR_F32, true, 0, 16, 16, 16, 0));
    tsr__tuned_table_finish(&table);
}
END_TEST

START_TEST(contributed_tunings_without_memory)
{
    tsr__tuned_table table = {0};
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    ck_assert_int_eq(tsr__contributed_add(&invented, &table), TSR_ERR_NO_MEMORY);
    tsr__fault_disarm();
    ck_assert_int_eq(tsr__tuned_table_choices(&table), 0);
    tsr__tuned_table_finish(&table);
}
END_TEST

TESTS(chips)
{
    tcase_add_test(tests, devices_get_their_lines);
    tcase_add_test(tests, lines_are_sound);
    tcase_add_test(tests, lines_that_overlap_are_nested);
    tcase_add_test(tests, fewer_processors_need_fewer_tiles);
    tcase_add_test(tests, ends_of_ranges);
    tcase_add_test(tests, contributed_tunings_become_entries);
    tcase_add_test(tests, contributed_tunings_without_memory);
}
