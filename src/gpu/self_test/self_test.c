#include "gpu/self_test/self_test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "gpu/self_test/results.h"

tsr_status tsr__self_test_mode_wanted(tsr__self_test_mode *out)
{
    const char *value = tsr__env_text("TESSERA_SELF_TEST");

    if (!value)
        *out = TSR__SELF_TEST_FIRST_USE;
    else if (strcmp(value, "off") == 0)
        *out = TSR__SELF_TEST_OFF;
    else if (strcmp(value, "full") == 0)
        *out = TSR__SELF_TEST_FULL;
    else
        return tsr__fail(TSR_ERR_INVALID, "TESSERA_SELF_TEST is '%s', not off or full", value);
    return TSR_OK;
}

/* What a device knows about its kernels ------------------------------------------------------- */

/* A kernel whose test result is known. Verdicts in the list do not change, so they can be found
 * without a lock. Kernels are identified by the addresses of their names. */
typedef struct verdict {
    const char *name;
    tsr_dtype dtype;
    bool right;
} verdict;

typedef struct self_tests {
    pthread_mutex_t lock;
    tsr__self_test_mode mode;
    atomic_int count; /* the number of verdicts; verdicts that are counted do not change */
    verdict verdicts[TSR__MAX_SELF_TESTS];
    tsr__self_tests stored; /* the results that were read from the file */
    tsr__self_tests added;  /* results of this process, which are not in the file yet */
} self_tests;

static tsr_status create_tests(tsr_device *device, void **out)
{
    self_tests *tests = tsr__calloc(1, sizeof *tests);
    if (!tests)
        return TSR_ERR_NO_MEMORY;
    pthread_mutex_init(&tests->lock, NULL);
    atomic_init(&tests->count, 0);
    tsr_status status = tsr__self_test_mode_wanted(&tests->mode);
    if (status == TSR_OK && tests->mode == TSR__SELF_TEST_FIRST_USE && device->disk_cache)
        status = tsr__results_read(&device->info, device->storage, &tests->stored);
    if (status != TSR_OK) {
        pthread_mutex_destroy(&tests->lock);
        tsr__free(tests);
        return status;
    }
    *out = tests;
    return TSR_OK;
}

static void store_tests(tsr_device *device, void *attachment)
{
    self_tests *tests = attachment;

    pthread_mutex_lock(&tests->lock);
    if (device->disk_cache && tests->added.count > 0)
        tsr__results_store(&device->info, device->storage, &tests->added);
    tests->added.count = 0;
    pthread_mutex_unlock(&tests->lock);
}

static void destroy_tests(tsr_device *device, void *attachment)
{
    self_tests *tests = attachment;

    (void)device;
    pthread_mutex_destroy(&tests->lock);
    tsr__free(tests);
}

static const tsr__attachment_kind tests_kind = {
    .create = create_tests,
    .close = store_tests,
    .destroy = destroy_tests,
};

static const verdict *find_verdict(const self_tests *tests, const char *name, tsr_dtype dtype)
{
    int count = atomic_load_explicit(&tests->count, memory_order_acquire);

    for (int i = 0; i < count; i++)
        if (tests->verdicts[i].name == name && tests->verdicts[i].dtype == dtype)
            return &tests->verdicts[i];
    return NULL;
}

/* Adds a verdict. The caller holds the lock. If the list is full, nothing is added, and the kernel
 * will be tested again at its next use. */
static void add_verdict(self_tests *tests, const char *name, tsr_dtype dtype, bool right)
{
    int count = atomic_load(&tests->count);

    if (count == TSR__MAX_SELF_TESTS || find_verdict(tests, name, dtype))
        return;
    tests->verdicts[count] = (verdict){name, dtype, right};
    atomic_store_explicit(&tests->count, count + 1, memory_order_release);
}

/* Testing -------------------------------------------------------------------------------------- */

static _Thread_local bool checking;

bool tsr__in_check(void)
{
    return checking;
}

static bool lacks_memory(tsr_status status)
{
    return status == TSR_ERR_NO_MEMORY || status == TSR_ERR_DEVICE_MEMORY;
}

static void report(const tsr_device *device, const char *name, tsr_dtype dtype, tsr_status status,
                   bool right, uint64_t ns)
{
    if (status != TSR_OK)
        tsr__log(TSR_LOG_ERROR, "self-test: the kernel %s is switched off for %s on %s: %s", name,
                 tsr_dtype_name(dtype), device->info.name, tsr_last_error());
    else if (!right)
        tsr__log(TSR_LOG_ERROR,
                 "self-test: the kernel %s is switched off for %s on %s, because its results are "
                 "wrong",
                 name, tsr_dtype_name(dtype), device->info.name);
    else
        tsr__log(TSR_LOG_DEBUG, "self-test: the kernel %s is right for %s, tested in %.1f ms", name,
                 tsr_dtype_name(dtype), (double)ns / 1e6);
}

/* Runs the check and remembers its result. Returns whether the kernel may be used. */
static bool test(tsr_device *device, self_tests *tests, const char *name, tsr_dtype dtype,
                 tsr__check_fn *check)
{
    tsr__self_test result = {.dtype = dtype};
    bool right = false;
    const uint64_t start_ns = tsr__now_ns();

    checking = true;
    tsr_status status = check(device, name, dtype, &right);
    checking = false;
    if (lacks_memory(status)) {
        tsr__log(TSR_LOG_WARNING, "self-test: the kernel %s was not tested: %s", name,
                 tsr_last_error());
        return true;
    }
    const bool tested = status != TSR_ERR_UNSUPPORTED;
    right = !tested || (right && status == TSR_OK);
    if (tested)
        report(device, name, dtype, status, right, tsr__now_ns() - start_ns);
    else
        tsr__log(TSR_LOG_DEBUG, "self-test: the kernel %s has no test for %s on %s", name,
                 tsr_dtype_name(dtype), device->info.name);
    result.right = right;
    snprintf(result.kernel, sizeof result.kernel, "%s", name);
    pthread_mutex_lock(&tests->lock);
    add_verdict(tests, name, dtype, right);
    if (tested)
        tsr__results_set(&tests->added, &result);
    pthread_mutex_unlock(&tests->lock);
    return right;
}

/* Looks up the kernel in the results that were read from the file. Adds its verdict to `tests` and
 * returns it; NULL if the file had none. */
static const verdict *recall(const tsr_device *device, self_tests *tests, const char *name,
                             tsr_dtype dtype)
{
    pthread_mutex_lock(&tests->lock);
    const tsr__self_test *stored = tsr__results_find(&tests->stored, name, dtype);
    if (stored) {
        add_verdict(tests, name, dtype, stored->right);
        if (!stored->right)
            tsr__log(TSR_LOG_WARNING,
                     "self-test: the kernel %s is switched off for %s on %s, because it failed "
                     "earlier",
                     name, tsr_dtype_name(dtype), device->info.name);
    }
    pthread_mutex_unlock(&tests->lock);
    return stored ? find_verdict(tests, name, dtype) : NULL;
}

bool tsr__kernel_works(tsr_device *device, const char *name, tsr_dtype dtype, tsr__check_fn *check)
{
    void *attachment;

    if (checking || !device->self_tested)
        return true;
    /* If there is no memory for the list of results, the kernel may be used without a test. */
    if (tsr__device_attach(device, &tests_kind, &attachment) != TSR_OK)
        return true;
    self_tests *tests = attachment;
    if (tests->mode == TSR__SELF_TEST_OFF)
        return true;
    const verdict *known = find_verdict(tests, name, dtype);
    if (!known)
        known = recall(device, tests, name, dtype);
    return known ? known->right : test(device, tests, name, dtype, check);
}
