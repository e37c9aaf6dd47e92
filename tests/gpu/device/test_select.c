/* Tests the selection of a device by a text. The list of devices is invented, so that every rule
 * can be tested. */
#include <stdio.h>
#include <string.h>

#include "gpu/device/facts.h"
#include "gpu/device/select.h"
#include "support/check_main.h"

static tsr__device_facts devices[5];
static const tsr_device_info *const infos[5] = {
    &devices[0].info, &devices[1].info, &devices[2].info, &devices[3].info, &devices[4].info};

static void describe(int i, const char *name, tsr_device_type type, uint64_t gib, uint8_t id)
{
    memset(&devices[i], 0, sizeof devices[i]);
    tsr__facts_connect(&devices[i]);
    snprintf(devices[i].name, sizeof devices[i].name, "%s", name);
    devices[i].info.index = i;
    devices[i].info.type = type;
    devices[i].info.usable = true;
    devices[i].info.heap_count = 1;
    devices[i].heaps[0] = (tsr_heap_info){.size_bytes = gib << 30, .device_local = true};
    memset(devices[i].info.uuid, id, sizeof devices[i].info.uuid);
}

static void listing(void)
{
    describe(0, "llvmpipe (LLVM)", TSR_DEVICE_CPU, 64, 0xa0);
    describe(1, "Intel Arc Graphics", TSR_DEVICE_INTEGRATED, 32, 0xa1);
    describe(2, "Radeon RX 7900 XT", TSR_DEVICE_DISCRETE, 20, 0xa2);
    describe(3, "Radeon RX 7900 XTX", TSR_DEVICE_DISCRETE, 24, 0xa3);
    describe(4, "Old Card", TSR_DEVICE_DISCRETE, 48, 0xa4);
    devices[4].info.usable = false;
    snprintf(devices[4].unusable_reason, sizeof devices[4].unusable_reason,
             "it has no timeline semaphores");
}

static int selected(const char *wanted)
{
    int chosen = -1;
    ck_assert_ok(tsr__select_device(infos, 5, wanted, &chosen));
    return chosen;
}

START_TEST(best_is_the_largest_usable_discrete_one)
{
    ck_assert_int_eq(selected(NULL), 3);
    ck_assert_int_eq(selected(""), 3);
    devices[3].info.usable = false;
    ck_assert_int_eq(selected(NULL), 2);
    devices[2].info.usable = false;
    ck_assert_int_eq(selected(NULL), 1);
    devices[1].info.type = TSR_DEVICE_VIRTUAL;
    ck_assert_int_eq(selected(NULL), 1);
    devices[1].info.type = TSR_DEVICE_OTHER;
    ck_assert_int_eq(selected(NULL), 1);
    devices[1].info.usable = false;
    ck_assert_int_eq(selected(NULL), 0);
}
END_TEST

START_TEST(index_uuid_and_name)
{
    ck_assert_int_eq(selected("0"), 0);
    ck_assert_int_eq(selected("002"), 2);
    ck_assert_int_eq(selected("a1a1a1a1-a1a1-a1a1-a1a1-a1a1a1a1a1a1"), 1);
    ck_assert_int_eq(selected("A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2A2"), 2);
    ck_assert_int_eq(selected("LLVMPIPE"), 0);
    ck_assert_int_eq(selected("arc"), 1);
    ck_assert_int_eq(selected("xtx"), 3);
}
END_TEST

START_TEST(no_match_lists_the_devices)
{
    int chosen = -7;
    ck_assert_error(tsr__select_device(infos, 2, "5", &chosen), TSR_ERR_NOT_FOUND,
                    "device: there is no device 5; there is 0 (llvmpipe (LLVM)), 1 (Intel Arc "
                    "Graphics)");
    ck_assert_error(tsr__select_device(infos, 1, "99999999999999999999999", &chosen),
                    TSR_ERR_NOT_FOUND,
                    "device: there is no device 99999999999999999999999; there is 0 (llvmpipe "
                    "(LLVM))");
    ck_assert_error(tsr__select_device(infos, 1, "geforce", &chosen), TSR_ERR_NOT_FOUND,
                    "device: no device matches \"geforce\"; there is 0 (llvmpipe (LLVM))");
    ck_assert_error(tsr__select_device(NULL, 0, "geforce", &chosen), TSR_ERR_NOT_FOUND,
                    "device: no device matches \"geforce\"; there is no device at all");
    ck_assert_error(tsr__select_device(NULL, 0, NULL, &chosen), TSR_ERR_NOT_FOUND,
                    "device: this machine has no Vulkan device");
    ck_assert_int_eq(chosen, -7);
}
END_TEST

START_TEST(several_matches_are_ambiguous)
{
    int chosen = -7;
    ck_assert_error(
        tsr__select_device(infos, 5, "radeon", &chosen), TSR_ERR_INVALID,
        "device: \"radeon\" matches several devices: 2 (Radeon RX 7900 XT) and 3 (Radeon "
        "RX 7900 XTX); use an index or a UUID");
    ck_assert_int_eq(chosen, -7);
}
END_TEST

START_TEST(an_unusable_device_says_why)
{
    int chosen = -7;
    ck_assert_error(tsr__select_device(infos, 5, "4", &chosen), TSR_ERR_UNSUPPORTED,
                    "device: 4 (Old Card) cannot be used: it has no timeline semaphores");
    ck_assert_error(
        tsr__select_device(&infos[4], 1, NULL, &chosen), TSR_ERR_UNSUPPORTED,
        "device: none of the 1 devices can be used; the first, Old Card: it has no timeline "
        "semaphores");
    ck_assert_int_eq(chosen, -7);
}
END_TEST

TESTS(select)
{
    tcase_add_checked_fixture(tests, listing, NULL);
    tcase_add_test(tests, best_is_the_largest_usable_discrete_one);
    tcase_add_test(tests, index_uuid_and_name);
    tcase_add_test(tests, no_match_lists_the_devices);
    tcase_add_test(tests, several_matches_are_ambiguous);
    tcase_add_test(tests, an_unusable_device_says_why);
}
