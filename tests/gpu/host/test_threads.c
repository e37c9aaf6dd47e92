/* Work that is divided among threads of the host. Each unit is done once, and the caller sees
 * all results. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "gpu/host/threads.h"
#include "support/check_main.h"

enum { UNITS = 100003 };

typedef struct parts {
    pthread_t caller;
    int done[TSR__HOST_THREADS_MAX];
} parts;

static void do_part(void *work, int part)
{
    parts *all = work;
    all->done[part] = pthread_equal(pthread_self(), all->caller) ? 1 : 2;
}

START_TEST(parts_run_once)
{
    for (int count = 1; count <= TSR__HOST_THREADS_MAX; count++) {
        parts all = {.caller = pthread_self()};
        tsr__host_tasks(count, do_part, &all);
        /* 2: a thread of the library did the part; 1: the caller did it, which must be the last
         * part */
        for (int i = 0; i < TSR__HOST_THREADS_MAX; i++)
            ck_assert_int_eq(all.done[i], i < count - 1 ? 2 : i == count - 1);
    }
}
END_TEST

typedef struct units {
    uint8_t *done;
} units;

static void do_units(const void *work, uint64_t first, uint64_t end)
{
    const units *all = work;
    for (uint64_t i = first; i < end; i++)
        all->done[i]++;
}

START_TEST(shares_are_complete)
{
    static const uint64_t sizes[] = {0, 1, 3 << 20, 5 << 20, UINT64_C(1) << 40};
    static const uint64_t counts[] = {0, 1, 2, 3, 7, UNITS};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            static uint8_t done[UNITS];
            memset(done, 0, sizeof done);
            tsr__host_share(counts[c], sizes[s], do_units, &(units){done});
            for (uint64_t i = 0; i < UNITS; i++)
                ck_assert_int_eq(done[i], i < counts[c]);
        }
    }
}
END_TEST

TESTS(host_threads)
{
    tcase_add_test(tests, parts_run_once);
    tcase_add_test(tests, shares_are_complete);
}
