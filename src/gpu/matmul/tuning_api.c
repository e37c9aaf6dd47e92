/* The functions of tuning/tuning.h that inspect and change the choice of kernels. */
#include "gpu/matmul/tuning/tuning.h"

#include <string.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "gpu/matmul/matmul.h"
#include "gpu/matmul/plan.h"
#include "gpu/matmul/tuning/shape_class.h"
#include "gpu/matmul/tuning/tuned.h"

static tsr_status check_choice(const tsr__tuning_choice *choice)
{
    TSR__REQUIRE(memchr(choice->kernel, '\0', sizeof choice->kernel) != NULL &&
                     choice->kernel[0] != '\0',
                 "tuning: the kernel's name is empty or has no terminating zero");
    TSR__REQUIRE(choice->splits <= TSR__TUNING_MAX_SPLITS,
                 "tuning: splits is %u; at most %u are possible", (unsigned)choice->splits,
                 (unsigned)TSR__TUNING_MAX_SPLITS);
    return TSR_OK;
}

static void describe(const tsr__matmul_plan *plan, uint32_t splits, tsr__tuning_choice *out)
{
    *out = (tsr__tuning_choice){.splits = splits};
    strncpy(out->kernel, plan->config->name, sizeof out->kernel - 1);
}

tsr_status tsr__tuning_inspect(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                               const tsr_tensor *b, const tsr_matmul_params *params,
                               tsr__tuning_info *out)
{
    TSR__TAKE(tsr_matmul_params, params);
    tsr__matmul_problem problem;
    tsr__matmul_plan usual, chosen;
    tsr__shape_class shape_class;
    tsr__tuning_info info = {0};

    TSR__REQUIRE(out != NULL, "tuning_inspect: out is NULL");
    TSR__TRY(tsr__matmul_check(stream, y, a, b, params, &problem));
    if (tsr__shape_class_of(&problem, &shape_class)) {
        tsr_device *gpu = tsr_stream_device(stream);
        tsr__tuned *tuned;
        TSR__TRY(tsr__tuned_of(gpu, &tuned));
        TSR__TRY(tsr__matmul_choose_tested(gpu, NULL, &problem, NULL, &usual));
        TSR__TRY(tsr__matmul_choose_tested(gpu, tuned, &problem, NULL, &chosen));
        info.shape_class = tsr__shape_class_pack(&shape_class);
        describe(&usual, usual.splits, &info.usual);
        describe(&chosen, chosen.splits, &info.chosen);
        info.tuned = chosen.tuned;
    }
    *out = info;
    return TSR_OK;
}

static bool same_plan(const tsr__matmul_plan *a, const tsr__matmul_plan *b)
{
    return a->config == b->config && a->splits == b->splits && a->k_chunk == b->k_chunk &&
           memcmp(&a->variant, &b->variant, sizeof a->variant) == 0;
}

/* Counts the plans of one configuration that differ from each other and from `usual`. They
 * differ in the number of ranges into which k is split. If there is a plan number `index`,
 * counted from 0, describes it in `out`. */
static int count_ways(const tsr__matmul_device *device, const tsr__matmul_problem *problem,
                      const tsr__matmul_plan *usual, const tsr__matmul_config *config, int index,
                      tsr__tuning_choice *out)
{
    static const uint32_t splits[] = {0, 1, 2, 4, 8, 16, 32};
    enum { WAYS = sizeof splits / sizeof *splits };
    tsr__matmul_plan seen[WAYS + 1] = {*usual};
    int seen_count = 1;

    for (int i = 0; i < WAYS; i++) {
        tsr__matmul_override override = {.config = config, .splits = splits[i]};
        tsr__matmul_plan plan;
        bool known = tsr__matmul_choose(device, NULL, problem, &override, &plan) != TSR_OK;
        for (int j = 0; j < seen_count && !known; j++)
            known = same_plan(&plan, &seen[j]);
        if (known)
            continue;
        if (seen_count - 1 == index)
            describe(&plan, splits[i], out);
        seen[seen_count++] = plan;
    }
    return seen_count - 1;
}

tsr_status tsr__tuning_candidate(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                 const tsr_tensor *b, const tsr_matmul_params *params, int index,
                                 tsr__tuning_choice *out)
{
    TSR__TAKE(tsr_matmul_params, params);
    tsr__matmul_problem problem;
    tsr__matmul_plan usual;
    const tsr__matmul_config *config;
    tsr__shape_class shape_class;
    int left = index;

    TSR__REQUIRE(out != NULL, "tuning_candidate: out is NULL");
    TSR__REQUIRE(index >= 0, "tuning_candidate: index is %d", index);
    TSR__TRY(tsr__matmul_check(stream, y, a, b, params, &problem));
    if (tsr__shape_class_of(&problem, &shape_class)) {
        tsr__matmul_device device = tsr__matmul_device_of(tsr_stream_device(stream));
        TSR__TRY(tsr__matmul_choose(&device, NULL, &problem, NULL, &usual));
        for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++) {
            if (!tsr__matmul_config_fits(config, &device, &problem))
                continue;
            int ways = count_ways(&device, &problem, &usual, config, left, out);
            if (left < ways)
                return TSR_OK;
            left -= ways;
        }
    }
    return tsr__fail(TSR_ERR_NOT_FOUND, "tuning_candidate: there are %d candidates; index is %d",
                     index - left, index);
}

tsr_status tsr__tuning_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                              const tsr_tensor *b, const tsr_matmul_params *params,
                              const tsr__tuning_choice *choice)
{
    TSR__TAKE(tsr_matmul_params, params);
    /* With an override, the tuning is not used, even if none of the override's fields is set. */
    tsr__matmul_override override = {0};

    if (choice) {
        TSR__TRY(check_choice(choice));
        TSR__TRY(tsr__matmul_config_find(choice->kernel, &override.config));
        override.splits = choice->splits;
    }
    return tsr__matmul_run(stream, y, a, b, params, &override);
}

tsr_status tsr__tuning_set(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                           const tsr_tensor *b, const tsr_matmul_params *params,
                           const tsr__tuning_choice *choice)
{
    TSR__TAKE(tsr_matmul_params, params);
    tsr__matmul_problem problem;
    tsr__shape_class shape_class;

    TSR__TRY(tsr__matmul_check(stream, y, a, b, params, &problem));
    TSR__REQUIRE(tsr__shape_class_of(&problem, &shape_class), "tuning_set: the product is empty");
    tsr_device *gpu = tsr_stream_device(stream);
    tsr__tuned *tuned;
    TSR__TRY(tsr__tuned_of(gpu, &tuned));
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    tsr__tuned_entry entry = {.shape_class = tsr__shape_class_pack(&shape_class)};
    if (choice) {
        tsr__matmul_override override = {.splits = choice->splits};
        tsr__matmul_plan plan;
        TSR__TRY(check_choice(choice));
        TSR__TRY(tsr__matmul_config_find(choice->kernel, &override.config));
        TSR__TRY(tsr__matmul_choose(&device, NULL, &problem, &override, &plan));
        entry.config = plan.config;
        entry.splits = choice->splits;
    }
    return tsr__tuned_set(tuned, &entry);
}

tsr_status tsr__tuning_save(tsr_device *device)
{
    TSR__REQUIRE(device != NULL, "tuning_save: device is NULL");
    tsr__tuned *tuned;
    TSR__TRY(tsr__tuned_of(device, &tuned));
    return tsr__tuned_save(device, tuned);
}

int tsr__tuning_count(const tsr_device *device)
{
    tsr__tuned *tuned;
    /* The first call reads the table. This does not change the device as callers see it. */
    if (!device || tsr__tuned_of((tsr_device *)device, &tuned) != TSR_OK)
        return 0;
    return tsr__tuned_count(tuned);
}

tsr_status tsr__tuning_path(const tsr_device *device, char *out, size_t size)
{
    char path[TSR__CACHE_PATH];

    TSR__REQUIRE(device != NULL && out != NULL, "tuning_path: %s is NULL",
                 device ? "out" : "device");
    tsr__tuned_owner owner = tsr__tuned_owner_of(device);
    TSR__TRY(tsr__tuned_path(&owner, path));
    TSR__REQUIRE(strlen(path) < size, "tuning_path: %zu bytes are too few for %s", size, path);
    strcpy(out, path);
    return TSR_OK;
}
