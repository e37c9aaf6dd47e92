/* Functions for files whose tests use one loader at a time. */
#ifndef TESTS_LOADER_ONE_LOADER_H
#define TESTS_LOADER_ONE_LOADER_H

#include "fixture.h"

static source data;
RESET_DATA
static tsr_loader *loader;

static inline void create(const tsr_loader_params *params)
{
    tsr_loader_destroy(&loader);
    ck_assert_ok(tsr_loader_create(params, &loader));
}

/* Destroys the loader. Checks that the threads saw no error, and that every worker that began has
 * ended. */
static inline void destroy(void)
{
    tsr_loader_destroy(&loader);
    ck_assert_int_eq(atomic_load(&data.wrong), 0);
    ck_assert_int_eq(atomic_load(&data.inits), atomic_load(&data.finishes));
}

static inline void check_next(uint64_t number)
{
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got = false;
    tsr_status status;
    do /* on a busy machine, the loader's timeout may pass before the batch is loaded */
        status = tsr_loader_next(loader, &batch, &got);
    while (status == TSR_ERR_TIMEOUT);
    ck_assert_ok(status);
    ck_assert(got);
    ck_assert_uint_eq(batch.batch, number);
}

#endif
