/* Whether a plan fits the memory of the ranks, and which other plan would. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/plan.h"

/* Gives the bytes by which the rank that lacks the most exceeds its memory; 0: all fit.
 * memory_bytes[ranks] may contain 0: no limit. NULL: each has `each_bytes`. */
static tsr_status missing(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                          const uint64_t *memory_bytes, uint64_t each_bytes, uint64_t *out,
                          int *rank)
{
    const int ranks = params->ranks == 0 ? 1 : params->ranks;
    tsr_model_rank_plan *held = tsr__calloc((size_t)ranks, sizeof *held);
    if (!held)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr__model_plan_ranks(plan, params, held);
    *out = 0;
    for (int r = 0; status == TSR_OK && r < ranks; r++) {
        const uint64_t limit = memory_bytes ? memory_bytes[r] : each_bytes;
        if (limit > 0 && held[r].total_bytes > limit && held[r].total_bytes - limit > *out) {
            *out = held[r].total_bytes - limit;
            *rank = r;
        }
    }
    tsr__free(held);
    return status;
}

/* Returns the smallest limit of memory, or 0 if there is none. */
static uint64_t smallest(const uint64_t *memory_bytes, int ranks)
{
    uint64_t least = 0;
    for (int r = 0; r < ranks; r++)
        if (memory_bytes[r] > 0 && (least == 0 || memory_bytes[r] < least))
            least = memory_bytes[r];
    return least;
}

/* Finds the smallest number of equal ranks that would fit. */
static tsr_status find_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                             uint64_t each_bytes, int *out)
{
    tsr_model_plan_params p = *params;
    p.partition = (tsr_partition_params){0};
    for (int n = (params->ranks == 0 ? 1 : params->ranks) + 1; n <= TSR_MODEL_PLAN_MAX_ADVICE;
         n++) {
        uint64_t lacks = 0;
        int rank;
        p.ranks = n;
        TSR__TRY(missing(plan, &p, NULL, each_bytes, &lacks, &rank));
        if (lacks == 0) {
            *out = n;
            return TSR_OK;
        }
    }
    return TSR_OK;
}

/* Finds the widest dtype that would fit on these ranks. */
static tsr_status find_dtype(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                             const uint64_t *memory_bytes, tsr_dtype *out)
{
    static const tsr_dtype dtypes[] = {TSR_F16,  TSR_Q8_0, TSR_Q6_K, TSR_Q5_K,
                                       TSR_Q4_K, TSR_Q4_0, TSR_Q3_K, TSR_Q2_K};
    tsr_model_plan_params p = *params;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        uint64_t lacks = 0;
        int rank;
        p.dtype = dtypes[i];
        TSR__TRY(missing(plan, &p, memory_bytes, 0, &lacks, &rank));
        if (lacks == 0) {
            *out = dtypes[i];
            return TSR_OK;
        }
    }
    return TSR_OK;
}

tsr_status tsr__model_plan_fit(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                               const uint64_t *memory_bytes, tsr_model_fit *out)
{
    tsr_model_fit fit = {.rank = -1};
    TSR__TRY(missing(plan, params, memory_bytes, 0, &fit.missing_bytes, &fit.rank));
    if (fit.missing_bytes > 0) {
        const uint64_t each = smallest(memory_bytes, params->ranks == 0 ? 1 : params->ranks);
        TSR__TRY(find_ranks(plan, params, each, &fit.ranks));
        TSR__TRY(find_dtype(plan, params, memory_bytes, &fit.dtype));
    }
    *out = fit;
    return TSR_OK;
}

/* Writes what would fit, such as "3 ranks of this size, or the dtype f16 would fit". */
static void write_fit(const tsr_model_fit *fit, size_t size, char *text)
{
    char ranks[40] = "", dtype[40] = "";
    if (fit->ranks > 0)
        snprintf(ranks, sizeof ranks, "%d ranks of this size", fit->ranks);
    if (fit->dtype != 0)
        snprintf(dtype, sizeof dtype, "the dtype %s", tsr_dtype_name(fit->dtype));
    snprintf(text, size, "%s%s%s%s", ranks, *ranks && *dtype ? ", or " : "", dtype,
             *ranks || *dtype ? " would fit" : "no more ranks and no other dtype would fit");
}

const char *tsr__model_plan_advice(const tsr__weights *weights, const tsr_model_plan_params *params,
                                   int rank, uint64_t memory_bytes,
                                   char text[TSR__MODEL_PLAN_ADVICE])
{
    const double mib = 1048576;
    const tsr__error before = tsr__error_take();
    tsr_model_fit fit = {0};
    tsr__model_plan plan = {0};
    char what[128];
    tsr_model_rank_plan *held = tsr__calloc((size_t)params->ranks, sizeof *held);
    uint64_t *memory = tsr__calloc((size_t)params->ranks, sizeof *memory);
    tsr_status status = held && memory ? tsr__model_plan_init(weights, &plan) : TSR_ERR_NO_MEMORY;
    for (int r = 0; status == TSR_OK && r < params->ranks; r++)
        memory[r] = memory_bytes;
    if (status == TSR_OK)
        status = tsr__model_plan_ranks(&plan, params, held);
    if (status == TSR_OK)
        status = tsr__model_plan_fit(&plan, params, memory, &fit);
    if (status == TSR_OK) {
        const uint64_t needed = held[rank].weight_bytes,
                       lacks = needed > memory_bytes ? needed - memory_bytes : 0;
        write_fit(&fit, sizeof what, what);
        snprintf(text, TSR__MODEL_PLAN_ADVICE,
                 "the weights of rank %d of %d need %.1f MiB, %.1f MiB more than the %.1f MiB of "
                 "the device%s%s",
                 rank, params->ranks, (double)needed / mib, (double)lacks / mib,
                 (double)memory_bytes / mib, fit.missing_bytes > 0 ? "; " : "",
                 fit.missing_bytes > 0 ? what : "");
    } else {
        snprintf(text, TSR__MODEL_PLAN_ADVICE, "the weights do not fit");
    }
    tsr__model_plan_finish(&plan);
    tsr__free(held);
    tsr__free(memory);
    tsr__error_put_back(&before);
    return text;
}
