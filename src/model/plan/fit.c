/* Whether a plan fits the memory of the ranks, and which other plan would. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/plan/plan.h"

/* Returns how many bytes a rank lacks. memory_bytes 0: no limit. */
static uint64_t lack(const tsr_model_rank_plan *held, uint64_t memory_bytes)
{
    return memory_bytes > 0 && held->total_bytes > memory_bytes ? held->total_bytes - memory_bytes
                                                                : 0;
}

/* Gives the bytes by which the rank that lacks the most exceeds its memory; 0: all fit. */
static tsr_status missing(const tsr__model_plan *given, const tsr_model_plan_params *p,
                          const uint64_t *memory_bytes, uint64_t *out, int *rank)
{
    tsr__model_plan with_memory = *given; /* that of these ranks */
    const tsr__model_plan *plan = &with_memory;
    with_memory.memory_bytes = memory_bytes;
    tsr_model_rank_plan *held = tsr__calloc((size_t)p->ranks, sizeof *held);
    int *layers = tsr__calloc((size_t)p->stages, sizeof *layers);
    tsr_status status = held && layers ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__model_plan_divide(plan, p, memory_bytes, layers);
    if (status == TSR_OK)
        status = tsr__model_plan_ranks(plan, p, layers, held);
    *out = 0;
    for (int r = 0; status == TSR_OK && r < p->ranks; r++) {
        const uint64_t lacks = lack(&held[r], memory_bytes[r]);
        if (lacks > *out) {
            *out = lacks;
            *rank = r;
        }
    }
    tsr__free(held);
    tsr__free(layers);
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

/* Finds the smallest number of equal ranks that would fit: more ranks in the only stage, or more
 * stages of as many ranks as now. */
static tsr_status find_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                             uint64_t each_bytes, int *out)
{
    const int layers = plan->weights->config->layers,
              step = params->stages > 1 ? params->ranks / params->stages : 1;
    uint64_t memory[TSR_MODEL_PLAN_MAX_ADVICE];
    const tsr_partition_params even = TSR_INIT(tsr_partition_params);
    tsr_model_plan_params p = *params;
    p.partition = &even;
    p.stage_layers = NULL;
    p.stage_rates = NULL;
    p.hosts = NULL; /* of other ranks */
    for (int n = params->ranks + step; n <= TSR_MODEL_PLAN_MAX_ADVICE; n += step) {
        uint64_t lacks = 0;
        int rank;
        p.ranks = n;
        p.stages = params->stages > 1 ? n / step : 1;
        for (int r = 0; r < n; r++)
            memory[r] = each_bytes;
        if (p.stages > layers)
            return TSR_OK;
        TSR__TRY(missing(plan, &p, memory, &lacks, &rank));
        if (lacks == 0) {
            *out = n;
            return TSR_OK;
        }
    }
    return TSR_OK;
}

/* Finds the widest dtype of weights with which the model would fit on these ranks. */
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
        TSR__TRY(missing(plan, &p, memory_bytes, &lacks, &rank));
        if (lacks == 0) {
            *out = dtypes[i];
            return TSR_OK;
        }
    }
    return TSR_OK;
}

/* Finds the smallest number of layers whose experts, in the host's memory, would make room enough.
 */
static tsr_status find_host_experts(const tsr__model_plan *plan,
                                    const tsr_model_plan_params *params,
                                    const uint64_t *memory_bytes, int *out)
{
    tsr_model_plan_params p = *params;
    uint64_t lacks = 0;
    int rank, low = params->host_experts, high = tsr__config_expert_layers(plan->weights->config);
    if (low >= high)
        return TSR_OK;
    p.host_experts = high;
    TSR__TRY(missing(plan, &p, memory_bytes, &lacks, &rank));
    if (lacks > 0)
        return TSR_OK;
    while (high - low > 1) { /* `high` fits, `low` does not */
        p.host_experts = low + (high - low) / 2;
        TSR__TRY(missing(plan, &p, memory_bytes, &lacks, &rank));
        *(lacks > 0 ? &low : &high) = p.host_experts;
    }
    *out = high;
    return TSR_OK;
}

tsr_status tsr__model_plan_fit(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                               const uint64_t *memory_bytes, tsr_model_fit *out)
{
    tsr_model_fit fit = {.rank = -1};
    TSR__TRY(missing(plan, params, memory_bytes, &fit.missing_bytes, &fit.rank));
    if (fit.missing_bytes > 0) {
        const uint64_t each = smallest(memory_bytes, params->ranks);
        TSR__TRY(find_ranks(plan, params, each, &fit.ranks));
        TSR__TRY(find_dtype(plan, params, memory_bytes, &fit.dtype));
        TSR__TRY(find_host_experts(plan, params, memory_bytes, &fit.host_experts));
    }
    *out = fit;
    return TSR_OK;
}

/* The error ------------------------------------------------------------------------------------ */

#define MOST_NAMED 6 /* stages in the error */

/* Appends to text[size]. */
#define ADD(text, size, ...) snprintf((text) + strlen(text), (size)-strlen(text), __VA_ARGS__)

#define SIZE_TEXT 32
static const char *format_size(uint64_t bytes, char text[SIZE_TEXT])
{
    const bool small = bytes < 1048576;
    snprintf(text, SIZE_TEXT, "%.1f %s", (double)bytes / (small ? 1024 : 1048576),
             small ? "KiB" : "MiB");
    return text;
}

/* Returns the rank of a stage that lacks the most, or −1 if all have enough. */
static int worst(const tsr_model_plan_params *p, const uint64_t *memory_bytes,
                 const tsr_model_rank_plan *held, int stage)
{
    const int each = p->ranks / p->stages;
    uint64_t most = 0;
    int rank = -1;
    for (int r = stage * each; r < (stage + 1) * each; r++)
        if (lack(&held[r], memory_bytes[r]) > most) {
            most = lack(&held[r], memory_bytes[r]);
            rank = r;
        }
    return rank;
}

/* Appends what a rank lacks, such as "the weights of stage 1 (layers 2 to 4) need 9.5 MiB, 1.5 MiB
 * more than its 8.0 MiB". */
static void add_lack(const tsr_model_plan_params *p, const tsr_model_rank_plan *held, int rank,
                     uint64_t memory_bytes, size_t size, char *text)
{
    char needed[SIZE_TEXT], lacks[SIZE_TEXT], there[SIZE_TEXT];
    const int each = p->ranks / p->stages;
    const char *what = p->context > 0 ? "the weights and the cache" : "the weights";
    if (p->stages == 1)
        ADD(text, size, "%s of rank %d of %d need ", what, rank, p->ranks);
    else if (each == 1)
        ADD(text, size, "%s of stage %d (layers %d to %d) need ", what, held->stage,
            held->first_layer, held->first_layer + held->layers - 1);
    else
        ADD(text, size, "%s of rank %d of stage %d (layers %d to %d) need ", what, rank % each,
            held->stage, held->first_layer, held->first_layer + held->layers - 1);
    ADD(text, size, "%s, %s more than its %s", format_size(held->total_bytes, needed),
        format_size(lack(held, memory_bytes), lacks), format_size(memory_bytes, there));
}

/* Appends what would fit, such as "3 ranks of this size, or the dtype f16 would fit". */
static void add_advice(const tsr_model_plan_params *p, const tsr_model_fit *fit, size_t size,
                       char *text)
{
    const char *before = "";
    if (fit->ranks == 0 && fit->dtype == 0 && fit->host_experts == 0) {
        ADD(text, size, "no more %s and no other dtype would fit",
            p->stages > 1 ? "stages" : "ranks");
        return;
    }
    if (fit->ranks > 0) {
        ADD(text, size, "%d %s of this size",
            p->stages > 1 ? fit->ranks / (p->ranks / p->stages) : fit->ranks,
            p->stages > 1 ? "stages" : "ranks");
        before = ", or ";
    }
    if (fit->dtype != 0) {
        ADD(text, size, "%sthe dtype %s", before, tsr_dtype_name(fit->dtype));
        before = ", or ";
    }
    if (fit->host_experts > 0)
        ADD(text, size, "%sexperts of %d layer%s in the host's memory (--experts host:%d)", before,
            fit->host_experts, fit->host_experts == 1 ? "" : "s", fit->host_experts);
    ADD(text, size, " would fit");
}

tsr_status tsr__model_plan_require(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                   const uint64_t *memory_bytes, const tsr_model_rank_plan *held)
{
    char text[TSR__ERROR_TEXT / 4 * 3] = "";
    tsr_model_fit fit;
    int named = 0;
    for (int s = 0; s < p->stages; s++) {
        const int rank = worst(p, memory_bytes, held, s);
        if (rank < 0 || ++named > MOST_NAMED)
            continue;
        if (named > 1)
            ADD(text, sizeof text, "; ");
        add_lack(p, &held[rank], rank, memory_bytes[rank], sizeof text, text);
    }
    if (named == 0)
        return TSR_OK;
    if (named > MOST_NAMED)
        ADD(text, sizeof text, "; so do %d other stages", named - MOST_NAMED);
    TSR__TRY(tsr__model_plan_fit(plan, p, memory_bytes, &fit));
    ADD(text, sizeof text, "; ");
    add_advice(p, &fit, sizeof text, text);
    return tsr__fail(TSR_ERR_DEVICE_MEMORY, "model: %s", text);
}
