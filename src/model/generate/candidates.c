/* Logits from several ranks, of the tokens that can be chosen only. Each rank has the logits of a
 * part of the vocabulary. If all sequences of a pass are greedy or have a small top_k, and none has
 * a penalty, a bias or log-probabilities, the ranks exchange their largest logits and not all of
 * them.
 *
 * This is exact. Let L be the k-th largest logit of the whole vocabulary. top_k keeps the tokens
 * with L or more. Each rank sends its k + 1 largest logits. If the last of them is below L, all of
 * this rank's tokens with L or more are among those before it. Otherwise, tokens that are equal to
 * L may be missing, and all logits are gathered. For a greedy choice, a rank's first candidate is
 * enough: tsr_topk puts equal elements in the order of their indices. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/generate/generator.h"
#include "model/model.h"

#define MOST_TOP_K 64
#define MOST (MOST_TOP_K + 1)

/* What a rank sends of a row. Missing candidates have the logit −inf. */
typedef struct candidate {
    float logit;
    int32_t token;
} candidate;

struct tsr__candidates {
    /* [rows, MOST], where a sequence has a row, and one for each draft, in memory that the host
     * reads: this rank's largest logits, and their indices in its part of the vocabulary */
    tsr_tensor *values, *indices;
    candidate *own; /* [rows, MOST] */
    candidate *all; /* [ranks, rows, MOST] */
};

void tsr__candidates_destroy(tsr__candidates **candidates)
{
    tsr__candidates *c = *candidates;
    if (!c)
        return;
    tsr_tensor_destroy(&c->values);
    tsr_tensor_destroy(&c->indices);
    tsr__free(c->own);
    tsr__free(c->all);
    tsr__free(c);
    *candidates = NULL;
}

tsr_status tsr__candidates_create(const tsr_generator *g, tsr__candidates **out)
{
    const tsr_model *m = g->model;
    const int64_t drafts = g->params.draft != TSR_DRAFT_NONE ? g->params.draft_tokens : 0;
    const int64_t shape[2] = {g->params.sequences * (1 + drafts), MOST};
    if (!m->is_last || tsr_group_size(m->group) == 1 || g->params.log_probabilities ||
        g->params.logits_positions > 0)
        return TSR_OK;
    tsr__candidates *c = tsr__calloc(1, sizeof *c);
    if (!c)
        return TSR_ERR_NO_MEMORY;
    c->own = tsr__calloc((size_t)shape[0], MOST * sizeof *c->own);
    c->all = tsr__calloc((size_t)(shape[0] * tsr_group_size(m->group)), MOST * sizeof *c->all);
    tsr_status status = c->own && c->all ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_tensor_create_host(m->device, TSR_F32, 2, shape, &c->values);
    if (status == TSR_OK)
        status = tsr_tensor_create_host(m->device, TSR_I32, 2, shape, &c->indices);
    if (status != TSR_OK) {
        tsr__candidates_destroy(&c);
        return status;
    }
    *out = c;
    return TSR_OK;
}

/* How many of the most likely tokens a draw may choose from; 0: any. */
static int64_t choosable(const tsr_sampling_params *p)
{
    if ((p->repetition_penalty != 0 && p->repetition_penalty != 1) || tsr__sampling_adjusts(p))
        return 0;
    if (p->temperature == 0)
        return 1;
    return p->top_k <= MOST_TOP_K ? p->top_k : 0;
}

/* Returns how many candidates each rank sends for every row; 0: all logits are needed. */
static int64_t candidates_for(const tsr_generator *g, int rows, const int *numbers)
{
    int64_t most = 0;
    for (int i = 0; g->candidates && i < rows; i++) {
        const tsr_sampling_params *p = &g->sequences[numbers[i]].sampling;
        const int64_t k = tsr__generator_wants_probability(g, numbers[i]) ? 0 : choosable(p),
                      needed = p->temperature == 0 ? 1 : k + 1;
        if (k == 0 || g->sequences[numbers[i]].grammar)
            return 0; /* a grammar may allow none of the most likely tokens */
        most = needed > most ? needed : most;
    }
    return most;
}

/* Finds this rank's largest logits of each row. own_logits is [rows, count], f32. */
static tsr_status find_own(const tsr_generator *g, const tsr_tensor *own_logits, int rows,
                           int64_t most)
{
    tsr__candidates *c = g->candidates;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    TSR__TRY(tsr_stack_get_info(g->model->stack, &info));
    const int64_t found = most < info.logits ? most : info.logits;
    tsr_tensor *values = NULL, *indices = NULL, *some = NULL, *places = NULL;
    tsr_status status = tsr_tensor_slice(c->values, 0, 0, rows, 1, &some);
    if (status == TSR_OK)
        status = tsr_tensor_slice(some, 1, 0, found, 1, &values);
    if (status == TSR_OK)
        status = tsr_tensor_slice(c->indices, 0, 0, rows, 1, &places);
    if (status == TSR_OK)
        status = tsr_tensor_slice(places, 1, 0, found, 1, &indices);
    if (status == TSR_OK)
        status = tsr_topk(g->model->stream, values, indices, own_logits, 1);
    if (status == TSR_OK)
        status = tsr_stream_wait(g->model->stream);
    void *logits = NULL, *tokens = NULL;
    if (status == TSR_OK)
        status = tsr_tensor_map(c->values, &logits);
    if (status == TSR_OK)
        status = tsr_tensor_map(c->indices, &tokens);
    for (int64_t i = 0; status == TSR_OK && i < rows * most; i++) {
        const int64_t at = i / most * MOST + i % most;
        const bool there = i % most < found;
        c->own[i] =
            (candidate){there ? ((const float *)logits)[at] : -INFINITY,
                        there ? ((const int32_t *)tokens)[at] + (int32_t)info.first_logit : 0};
    }
    tsr_tensor_destroy(&values);
    tsr_tensor_destroy(&indices);
    tsr_tensor_destroy(&some);
    tsr_tensor_destroy(&places);
    return status;
}

/* Returns the k-th largest of the candidates of a row. */
static float kth_largest(const candidate *row, int ranks, int64_t stride, int64_t most, int64_t k)
{
    int64_t taken[TSR_MAX_COMM_SIZE] = {0}; /* by rank, of its candidates in their order */
    float last = -INFINITY;
    for (int64_t n = 0; n < k; n++) {
        int best = -1;
        for (int r = 0; r < ranks; r++)
            if (taken[r] < most && (best < 0 || row[r * stride + taken[r]].logit >
                                                    row[best * stride + taken[best]].logit))
                best = r;
        if (best < 0)
            return -INFINITY;
        last = row[best * stride + taken[best]++].logit;
    }
    return last;
}

/* True if no token that can be chosen is missing from a row's candidates. */
static bool complete(const tsr_generator *g, const tsr_sampling_params *p, const candidate *row,
                     int64_t stride, int64_t most)
{
    const int ranks = tsr_group_size(g->model->group);
    const int64_t *parts = g->model->stack->vocabulary;
    for (int r = 0; r < ranks; r++)
        if (!(row[r * stride].logit < INFINITY)) /* NaN counts as the largest element */
            return false;
    if (p->temperature == 0)
        return true;
    const float limit = kth_largest(row, ranks, stride, most, p->top_k);
    for (int r = 0; r < ranks; r++) {
        const float last = row[r * stride + most - 1].logit;
        if (parts[r] > most && last >= limit && last != -INFINITY)
            return false;
    }
    return true;
}

/* Exchanges the candidates, and writes them to logits [rows, vocabulary]; all other tokens get
 * −inf. *out is false if some may be missing, on all ranks alike. */
static tsr_status exchange(const tsr_generator *g, int rows, const int *numbers, int64_t most,
                           float *logits, bool *out)
{
    const tsr__candidates *c = g->candidates;
    const int ranks = tsr_group_size(g->model->group);
    const int64_t stride = rows * most, vocabulary = g->model->config->vocabulary;
    TSR__TRY(tsr_comm_all_gather(tsr_group_comm(g->model->group), c->own, c->all,
                                 (uint64_t)stride * sizeof *c->own, TSR_U8, NULL));
    for (int i = 0; i < rows; i++)
        if (!complete(g, &g->sequences[numbers[i]].sampling, c->all + i * most, stride, most))
            return TSR_OK;
    for (int64_t i = 0; i < rows * vocabulary; i++)
        logits[i] = -INFINITY;
    for (int64_t i = 0; i < ranks * stride; i++)
        if (c->all[i].logit != -INFINITY)
            logits[i % stride / most * vocabulary + c->all[i].token] = c->all[i].logit;
    *out = true;
    return TSR_OK;
}

/* Makes *flat the logits [rows, count] in f32. */
static tsr_status flatten(const tsr_model *m, const tsr_tensor *own, int rows, tsr_tensor **flat)
{
    const int64_t shape[2] = {rows, tsr_tensor_layout(own)->shape[2]};
    tsr_tensor *wide = NULL;
    TSR__TRY(tsr_tensor_reshape(own, 2, shape, flat));
    if (tsr_tensor_layout(*flat)->dtype == TSR_F32)
        return TSR_OK;
    TSR__TRY(tsr_tensor_create(m->device, TSR_F32, 2, shape, &wide));
    const tsr_status status = tsr_copy(m->stream, wide, *flat);
    tsr_tensor_destroy(flat);
    *flat = wide;
    return status;
}

tsr_status tsr__candidate_logits(tsr_generator *g, const tsr_tensor *features, int64_t token,
                                 int rows, const int *numbers, float *logits)
{
    tsr_model *m = g->model;
    const int64_t most = candidates_for(g, rows, numbers);
    if (most == 0)
        return tsr__model_logits(m, features, token, 1, logits);
    tsr_tensor *last = NULL, *own = NULL, *flat = NULL;
    bool all_there = false;
    TSR__TRY(tsr_tensor_slice(features, 1, token, token + 1, 1, &last));
    tsr_status status = tsr__stack_head_after_blocks(m->stack, last, &own);
    if (status == TSR_OK)
        status = flatten(m, own, rows, &flat);
    if (status == TSR_OK)
        status = find_own(g, flat, rows, most);
    if (status == TSR_OK)
        status = exchange(g, rows, numbers, most, logits, &all_there);
    if (status == TSR_OK && !all_there)
        status = tsr_stack_gather_logits(m->stack, own, logits);
    tsr_tensor_destroy(&last);
    tsr_tensor_destroy(&own);
    tsr_tensor_destroy(&flat);
    return status;
}
