/* Tests which devices the launcher assigns to ranks. The test replaces the functions that list
 * devices. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "support/check_main.h"
#include "tessera/device.h"

typedef enum driver_kind { LISTS, HANGS, CRASHES } driver_kind;

static driver_kind driver;
static tsr_device_info devices[5];
static int device_count;

tsr_status tsr_device_list_create(tsr_device_list **out)
{
    static const tsr_device_info *infos[5];
    static tsr_device_list list;
    if (driver == HANGS)
        pause();
    if (driver == CRASHES)
        raise(SIGKILL);
    for (int i = 0; i < device_count; i++)
        infos[i] = &devices[i];
    list = (tsr_device_list){.count = device_count, .devices = infos};
    *out = &list;
    return TSR_OK;
}

void tsr_device_list_destroy(tsr_device_list **list)
{
    *list = NULL;
}

static launch_devices find(const char *map)
{
    launch_devices found = {0};
    ck_assert_int_eq(launch_devices_find(map, &found), CLI_DONE);
    return found;
}

static void add(tsr_device_type type, bool usable)
{
    devices[device_count] =
        (tsr_device_info){.index = device_count, .type = type, .usable = usable};
    device_count++;
}

START_TEST(takes_the_best_type)
{
    add(TSR_DEVICE_CPU, true);
    add(TSR_DEVICE_DISCRETE, false);
    launch_devices found = find("auto");
    ck_assert_int_eq(found.count, 1);
    ck_assert_int_eq(found.indices[0], 0);
    add(TSR_DEVICE_DISCRETE, true);
    add(TSR_DEVICE_DISCRETE, true);
    found = find("auto");
    ck_assert_int_eq(found.count, 2);
    ck_assert_int_eq(found.indices[0], 2);
    ck_assert_int_eq(found.indices[1], 3);
}
END_TEST

/* Tests the order that tessera/device.h documents for tsr_device_open, from the worst type of
 * device on. */
START_TEST(takes_what_a_program_alone_would_open)
{
    static const tsr_device_type better_and_better[] = {TSR_DEVICE_CPU, TSR_DEVICE_OTHER,
                                                        TSR_DEVICE_VIRTUAL, TSR_DEVICE_INTEGRATED,
                                                        TSR_DEVICE_DISCRETE};
    for (int i = 0; i < 5; i++) {
        add(better_and_better[i], true);
        launch_devices found = find("auto");
        ck_assert_int_eq(found.count, 1);
        ck_assert_int_eq(found.indices[0], i);
    }
}
END_TEST

START_TEST(goes_on_without_devices)
{
    static const driver_kind drivers[] = {LISTS, CRASHES, HANGS};
    driver = drivers[_i];
    if (driver != LISTS)
        add(TSR_DEVICE_CPU, true);
    ck_assert_int_eq(find("auto").count, 0);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1); /* the process that listed devices is gone */
}
END_TEST

START_TEST(takes_what_was_asked_for)
{
    driver = HANGS;
    launch_devices found = find("3,0,3");
    ck_assert_int_eq(found.count, 3);
    ck_assert_int_eq(found.indices[0], 3);
    ck_assert_int_eq(found.indices[1], 0);
    ck_assert_int_eq(found.indices[2], 3);
}
END_TEST

TESTS(devices)
{
    tcase_add_test(tests, takes_the_best_type);
    tcase_add_test(tests, takes_what_a_program_alone_would_open);
    tcase_add_loop_test(tests, goes_on_without_devices, 0, 3);
    tcase_add_test(tests, takes_what_was_asked_for);
}
