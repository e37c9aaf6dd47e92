/* Fuzz targets: each takes any bytes, and aborts if the library breaks one of its guarantees.
 * libFuzzer calls them in the lane `fuzz`; replay.c calls them with the committed corpus in every
 * build. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard/plan/shard_plan.h"
#include "tessera/shard.h"

/* The function that libFuzzer calls. It returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prints the condition that does not hold, and aborts. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: '%s' does not hold; the last error is '%s'\n", __FILE__,       \
                    __LINE__, #condition, tsr_last_error());                                       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* Checks that an error names the offset: "gguf: offset 24: …". TSR_ERR_NO_MEMORY is not allowed,
 * because the inputs are small. */
static inline void fuzz_check_refusal(tsr_status status, const char *what)
{
    char start[32];
    snprintf(start, sizeof start, "%s: offset ", what);
    FUZZ_CHECK(status == TSR_ERR_INVALID || status == TSR_ERR_UNSUPPORTED);
    FUZZ_CHECK(strncmp(tsr_last_error(), start, strlen(start)) == 0);
}

/* Checks an accepted list: its parameters are consistent, and the plan of each strategy is valid
 * and is the same after saving and loading. `file_bytes` is 0 if there are no weights. */
static inline void fuzz_check_list(const tsr_shard_list *list, uint64_t file_bytes)
{
    uint64_t count = tsr_shard_list_param_count(list), ranges = 0;
    const tsr_shard_param *params = tsr_shard_list_param(list, 0);
    for (uint64_t p = 0; p < count; p++) {
        FUZZ_CHECK(params[p].name[0] != '\0' && params[p].layer[0] != '\0');
        FUZZ_CHECK(params[p].ndim >= 0 && params[p].ndim <= TSR_SHARD_MAX_DIMS);
        FUZZ_CHECK(params[p].count % params[p].block_count == 0);
        FUZZ_CHECK(file_bytes == 0 ||
                   (params[p].offset_bytes <= file_bytes &&
                    params[p].size_bytes <= file_bytes - params[p].offset_bytes));
    }
    for (int kind = 0; kind < 4; kind++) {
        tsr_shard_strategy *strategy = NULL;
        tsr_shard_plan *plan = NULL, *again = NULL;
        FUZZ_CHECK(tsr_shard_strategy_create(
                       tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind), &strategy) == 0);
        tsr_status status = tsr_shard_plan_create(strategy, count, params,
                                                  tsr_shard_plan_params(.ranks = 3), &plan);
        tsr_shard_strategy_destroy(&strategy);
        FUZZ_CHECK(status == TSR_OK || count == 0 || status == TSR_ERR_OVERFLOW);
        if (plan == NULL)
            continue;
        size_t size = 0;
        FUZZ_CHECK(tsr_shard_plan_check(plan, count, params) == TSR_OK);
        FUZZ_CHECK(tsr_shard_plan_save_json(plan, 0, NULL, &size) == TSR_OK);
        char *text = malloc(size);
        FUZZ_CHECK(text != NULL && tsr_shard_plan_save_json(plan, size, text, &size) == TSR_OK);
        FUZZ_CHECK(tsr_shard_plan_load_json(text, size, &again) == TSR_OK);
        FUZZ_CHECK(tsr__plan_equal(plan, again));
        free(text);
        ranges += tsr_shard_plan_param_count(plan);
        tsr_shard_plan_destroy(&plan);
        tsr_shard_plan_destroy(&again);
    }
    FUZZ_CHECK(ranges == 0 || ranges == 4 * count);
}

#endif
