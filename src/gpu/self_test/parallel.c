/* Testing many kernels at the same time. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/error.h"
#include "gpu/self_test/self_test.h"

enum { MAX_THREADS = 16 };

typedef struct run {
    tsr_device *device;
    const tsr__kernel_tests *list;
    atomic_int next; /* the first test that no thread has taken */
} run;

void tsr__kernel_tests_add(tsr__kernel_tests *list, const char *name, tsr_dtype dtype,
                           tsr__check_fn *check)
{
    if (list->count == TSR_MAX_SELF_TESTS) {
        tsr__log(TSR_LOG_ERROR, "self-test: the list of %d kernels is full without %s for %s",
                 list->count, name, tsr_dtype_name(dtype));
        return;
    }
    list->tests[list->count++] = (tsr__kernel_test){name, dtype, check};
}

static void *take_tests(void *opaque)
{
    run *all = opaque;
    int taken;

    while ((taken = atomic_fetch_add(&all->next, 1)) < all->list->count) {
        const tsr__kernel_test *test = &all->list->tests[taken];
        (void)tsr__kernel_works(all->device, test->name, test->dtype, test->check);
    }
    return NULL;
}

void tsr__kernel_tests_run(tsr_device *device, const tsr__kernel_tests *list)
{
    run all = {.device = device, .list = list};
    pthread_t threads[MAX_THREADS - 1];
    sigset_t signals, before;
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int started = 0;

    /* The threads block all signals, so that the process's own threads handle them. */
    sigfillset(&signals);
    pthread_sigmask(SIG_SETMASK, &signals, &before);
    while (started + 1 < MAX_THREADS && started + 1 < cpus && started + 1 < list->count &&
           pthread_create(&threads[started], NULL, take_tests, &all) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    take_tests(&all);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
