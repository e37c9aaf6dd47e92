/* Testing many kernels at the same time. */
#include <stdatomic.h>

#include "base/error.h"
#include "gpu/host/threads.h"
#include "gpu/self_test/self_test.h"

typedef struct run {
    tsr_device *device;
    const tsr__kernel_tests *list;
    atomic_int next; /* the first test that no thread has taken */
} run;

void tsr__kernel_tests_add(tsr__kernel_tests *list, const char *name, tsr_dtype dtype,
                           tsr__check_fn *check)
{
    if (list->count == TSR__MAX_SELF_TESTS) {
        tsr__log(TSR_LOG_ERROR, "self-test: the list of %d kernels is full without %s for %s",
                 list->count, name, tsr_dtype_name(dtype));
        return;
    }
    list->tests[list->count++] = (tsr__kernel_test){name, dtype, check};
}

static void take_tests(void *opaque, int thread)
{
    run *all = opaque;
    int taken;

    (void)thread; /* its number does not matter: each thread takes the next test */
    while ((taken = atomic_fetch_add(&all->next, 1)) < all->list->count) {
        const tsr__kernel_test *test = &all->list->tests[taken];
        (void)tsr__kernel_works(all->device, test->name, test->dtype, test->check);
    }
}

void tsr__kernel_tests_run(tsr_device *device, const tsr__kernel_tests *list)
{
    run all = {.device = device, .list = list};
    int threads = tsr__host_processors();

    threads = threads < list->count ? threads : list->count;
    threads = threads < TSR__HOST_THREADS_MAX ? threads : TSR__HOST_THREADS_MAX;
    tsr__host_tasks(threads, take_tests, &all);
}
