/* Tokens chosen by several ranks. Each rank has the logits of a part of the vocabulary. Where a
 * token can be drawn without all logits (split_draw.h), the ranks exchange their largest logits,
 * after penalties and biases, and all of them choose the same token. With a temperature alone, or
 * with min_p, they also exchange sums of weights, and the rank that has the token tells the others.
 *
 * The first exchange also says which ranks have been interrupted. If all ranks know all tokens of a
 * step, and it has one stage, it needs no other exchange.
 *
 * With drafts, tokens are chosen in later steps. Then the logits that can be chosen are written
 * where others are −inf. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/generate/generator.h"
#include "model/generate/split_draw.h"
#include "model/model.h"

#define MOST TSR__SPLIT_MOST

struct tsr__candidates {
    /* [rows, MOST], where a sequence has a row, and one for each draft, in memory that the host
     * reads: this rank's largest logits, and their indices in its part of the vocabulary */
    tsr_tensor *values, *indices;
    tsr_tensor *logits;  /* f32 [rows, this rank's tokens], for sums; NULL: none was needed yet */
    tsr__candidate *own; /* [1 + rows * MOST]: the first says whether this rank is interrupted */
    tsr__candidate *all; /* [ranks, 1 + rows * MOST] */
    uint64_t *own_sums;  /* [rows] */
    uint64_t *sums;      /* [ranks, rows] */
    bool *known;         /* [sequences]: all ranks have chosen the sequence's next token */
    bool interrupted;    /* a rank was, in an exchange of this step */
    bool with_drafts;    /* this step may have drafts, or agree on them */
};

/* A pass for whose rows tokens are chosen. */
typedef struct pass {
    tsr_generator *g;
    const tsr_tensor *own; /* [rows, count]: this rank's logits, f32 */
    int rows;
    const int *numbers; /* [rows] */
    int64_t most;       /* candidates of each rank and row */
    bool sums;          /* a row needs sums */
    bool changes;       /* a row's params change logits, which the host does */
    int64_t first;      /* the first of this rank's tokens */
} pass;

void tsr__candidates_destroy(tsr__candidates **candidates)
{
    tsr__candidates *c = *candidates;
    if (!c)
        return;
    tsr_tensor_destroy(&c->values);
    tsr_tensor_destroy(&c->indices);
    tsr_tensor_destroy(&c->logits);
    tsr__free(c->own);
    tsr__free(c->all);
    tsr__free(c->own_sums);
    tsr__free(c->sums);
    tsr__free(c->known);
    tsr__free(c);
    *candidates = NULL;
}

static tsr_status create_memory(const tsr_generator *g, tsr__candidates *c)
{
    const int64_t drafts = g->params.draft != TSR_DRAFT_NONE ? g->params.draft_tokens : 0;
    const int64_t shape[2] = {g->params.sequences * (1 + drafts), MOST};
    const size_t rows = (size_t)shape[0], ranks = (size_t)tsr_group_size(g->model->group);
    c->own = tsr__calloc(1 + rows * MOST, sizeof *c->own);
    c->all = tsr__calloc(ranks * (1 + rows * MOST), sizeof *c->all);
    c->own_sums = tsr__calloc(rows, sizeof *c->own_sums);
    c->sums = tsr__calloc(ranks * rows, sizeof *c->sums);
    c->known = tsr__calloc((size_t)g->params.sequences, sizeof *c->known);
    if (!c->own || !c->all || !c->own_sums || !c->sums || !c->known)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr_tensor_create_host(g->model->device, TSR_F32, 2, shape, &c->values));
    return tsr_tensor_create_host(g->model->device, TSR_I32, 2, shape, &c->indices);
}

tsr_status tsr__candidates_create(const tsr_generator *g, tsr__candidates **out)
{
    const tsr_model *m = g->model;
    if (!m->is_last || m->context_group || tsr_group_size(m->group) == 1 ||
        g->params.log_probabilities || g->params.logits_positions > 0)
        return TSR_OK;
    tsr__candidates *c = tsr__calloc(1, sizeof *c);
    if (!c)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = create_memory(g, c);
    if (status != TSR_OK) {
        tsr__candidates_destroy(&c);
        return status;
    }
    *out = c;
    return TSR_OK;
}

void tsr__candidates_begin_step(tsr_generator *g)
{
    tsr__candidates *c = g->candidates;
    if (!c)
        return;
    memset(c->known, 0, (size_t)g->count * sizeof *c->known);
    c->interrupted = false;
    c->with_drafts = !tsr__drafts_are_quiet(g);
}

bool tsr__candidates_agree(const tsr_generator *g, int count, const int *numbers, bool *interrupted)
{
    const tsr__candidates *c = g->candidates;
    /* Other stages have not taken part, and drafts need their length to be agreed. */
    if (!c || g->model->stage_count > 1 || c->with_drafts)
        return false;
    for (int i = 0; i < count; i++)
        if (!c->known[numbers[i]])
            return false;
    *interrupted = c->interrupted;
    return true;
}

/* What ranks exchange ------------------------------------------------------------------------ */

static tsr__split_kind kind_of(const tsr_generator *g, int number, int64_t *most)
{
    const tsr__sequence *s = &g->sequences[number];
    /* A grammar may allow none of the most likely tokens, and the caller's function sees all. With
     * all logits, rank 0 reports a bias that is for no token. */
    return tsr__limit_changes(s) || tsr__generator_wants_probability(g, number) ||
                   tsr__sampling_check_biases(&s->sampling, g->model->config->vocabulary) != TSR_OK
               ? TSR__SPLIT_GATHER
               : tsr__split_kind_of(&s->sampling, most);
}

/* Sets p->most and p->sums. Returns false if all logits must be gathered. */
static bool suits(pass *p)
{
    const tsr_generator *g = p->g;
    for (int i = 0; i < p->rows; i++) {
        int64_t most = 1;
        const tsr__split_kind kind = kind_of(g, p->numbers[i], &most);
        const bool changes = tsr__sampling_changes(&g->sequences[p->numbers[i]].sampling);
        if (kind == TSR__SPLIT_GATHER ||
            ((kind != TSR__SPLIT_CANDIDATES || changes) && g->candidates->with_drafts))
            return false;
        p->most = most > p->most ? most : p->most;
        p->sums = p->sums || kind != TSR__SPLIT_CANDIDATES;
        p->changes = p->changes || changes;
    }
    return true;
}

/* Describes row `i` after the exchange of candidates. */
static tsr_status describe(const pass *p, int i, bool with_sums, tsr__split_row *out)
{
    const tsr_generator *g = p->g;
    const tsr__candidates *c = g->candidates;
    const tsr__sequence *s = &g->sequences[p->numbers[i]];
    int64_t most;
    *out = (tsr__split_row){
        .kind = tsr__split_kind_of(&s->sampling, &most),
        .params = &s->sampling,
        .ranks = tsr_group_size(g->model->group),
        .parts = g->model->stack->vocabulary,
        .most = p->most,
        .candidates = c->all + 1 + i * p->most,
        .stride = 1 + p->rows * p->most,
        .sums = with_sums ? c->sums + i : NULL,
        .sums_stride = p->rows,
    };
    return tsr__sampling_choice(&s->sampling, s->number, s->length, &out->words);
}

/* Returns a view of the first columns of a tensor's first rows. */
static tsr_status view_of(const tsr_tensor *tensor, int rows, int64_t columns, tsr_tensor **out)
{
    tsr_tensor *some = NULL;
    TSR__TRY(tsr_tensor_slice(tensor, 0, 0, rows, 1, &some));
    const tsr_status status = tsr_tensor_slice(some, 1, 0, columns, 1, out);
    tsr_tensor_destroy(&some);
    return status;
}

/* Records the copy of this rank's logits to memory that the host reads. */
static tsr_status copy_logits(const pass *p)
{
    tsr__candidates *c = p->g->candidates;
    const tsr_model *m = p->g->model;
    const int64_t count = tsr_tensor_layout(p->own)->shape[1];
    tsr_tensor *copy = NULL;
    if (!c->logits)
        TSR__TRY(tsr_tensor_create_host(m->device, TSR_F32, 2,
                                        (int64_t[]){p->g->params.sequences, count}, &c->logits));
    TSR__TRY(view_of(c->logits, p->rows, count, &copy));
    const tsr_status status = tsr_copy(m->stream, copy, p->own);
    tsr_tensor_destroy(&copy);
    return status;
}

/* Changes this rank's logits of a row by the sequence's params, in memory that the host reads, and
 * lists the candidates again. */
static tsr_status change_own(const pass *p, int i)
{
    const tsr__candidates *c = p->g->candidates;
    const tsr__sequence *s = &p->g->sequences[p->numbers[i]];
    const int64_t count = tsr_tensor_layout(p->own)->shape[1];
    struct tsr_choice_words words;
    void *memory;
    TSR__TRY(tsr__sampling_choice(&s->sampling, s->number, s->length, &words));
    TSR__TRY(tsr_tensor_map(c->logits, &memory));
    float *logits = (float *)memory + i * count;
    bool regular = true;
    for (int64_t k = 0; k < count; k++)
        regular = regular && logits[k] < INFINITY;
    if (regular) /* others are reported as they are, from all logits */
        TSR__TRY(tsr__sampling_change(&s->sampling, &words, p->first, count, logits, s->length,
                                      s->tokens));
    tsr__split_list(count, logits, (int32_t)p->first, p->most, c->own + 1 + i * p->most);
    return TSR_OK;
}

/* Finds this rank's largest logits of each row. Waits for the device once. */
static tsr_status find_own(const pass *p)
{
    tsr__candidates *c = p->g->candidates;
    tsr_stream *stream = p->g->model->stream;
    const int64_t count = tsr_tensor_layout(p->own)->shape[1],
                  found = p->most < count ? p->most : count;
    tsr_tensor *values = NULL, *indices = NULL;
    tsr_status status = view_of(c->values, p->rows, found, &values);
    if (status == TSR_OK)
        status = view_of(c->indices, p->rows, found, &indices);
    if (status == TSR_OK)
        status = tsr_topk(stream, values, indices, p->own, 1);
    if (status == TSR_OK && (p->sums || p->changes))
        status = copy_logits(p);
    if (status == TSR_OK)
        status = tsr_stream_wait(stream);
    void *logits = NULL, *tokens = NULL;
    if (status == TSR_OK)
        status = tsr_tensor_map(c->values, &logits);
    if (status == TSR_OK)
        status = tsr_tensor_map(c->indices, &tokens);
    for (int64_t i = 0; status == TSR_OK && i < p->rows * p->most; i++) {
        const int64_t at = i / p->most * MOST + i % p->most;
        const bool exists = i % p->most < found;
        c->own[1 + i] =
            (tsr__candidate){exists ? ((const float *)logits)[at] : -INFINITY,
                             exists ? ((const int32_t *)tokens)[at] + (int32_t)p->first : 0};
    }
    for (int i = 0; status == TSR_OK && i < p->rows; i++)
        if (tsr__sampling_changes(&p->g->sequences[p->numbers[i]].sampling))
            status = change_own(p, i);
    tsr_tensor_destroy(&values);
    tsr_tensor_destroy(&indices);
    return status;
}

/* Exchanges candidates, and which ranks are interrupted. *out is false if all logits are needed, on
 * all ranks alike. */
static tsr_status exchange(const pass *p, bool *out)
{
    tsr_generator *g = p->g;
    tsr__candidates *c = g->candidates;
    const int64_t stride = 1 + p->rows * p->most;
    c->own[0] = (tsr__candidate){.token = atomic_load(&g->interrupt)};
    TSR__TRY(tsr_comm_all_gather(tsr_group_comm(g->model->group), c->own, c->all,
                                 (uint64_t)stride * sizeof *c->own, TSR_U8, NULL));
    for (int r = 0; r < tsr_group_size(g->model->group); r++)
        c->interrupted = c->interrupted || c->all[r * stride].token != 0;
    for (int i = 0; i < p->rows; i++) {
        tsr__split_row row;
        TSR__TRY(describe(p, i, false, &row));
        if (!tsr__split_suffices(&row))
            return TSR_OK;
    }
    *out = true;
    return TSR_OK;
}

static tsr_status exchange_sums(const pass *p)
{
    const tsr__candidates *c = p->g->candidates;
    const int64_t count = tsr_tensor_layout(p->own)->shape[1];
    void *logits;
    TSR__TRY(tsr_tensor_map(c->logits, &logits));
    for (int i = 0; i < p->rows; i++) {
        tsr__split_row row;
        TSR__TRY(describe(p, i, false, &row));
        c->own_sums[i] = row.kind == TSR__SPLIT_CANDIDATES
                             ? 0
                             : tsr__split_sum(&row, count, (const float *)logits + i * count);
    }
    return tsr_comm_all_gather(tsr_group_comm(p->g->model->group), c->own_sums, c->sums,
                               (uint64_t)p->rows * sizeof *c->own_sums, TSR_U8, NULL);
}

/* Choosing ----------------------------------------------------------------------------------- */

/* Finds the token of a row if this rank has it. */
static tsr_status find_token(const pass *p, int i, const tsr__split_row *row)
{
    const int64_t count = tsr_tensor_layout(p->own)->shape[1];
    int32_t *chosen = &p->g->chosen[p->numbers[i]];
    void *logits;
    uint64_t place;
    int rank;
    tsr__split_find_rank(row, &rank, &place);
    *chosen = TSR__CHOSEN_ELSEWHERE;
    if (rank != tsr_group_rank(p->g->model->group))
        return TSR_OK;
    TSR__TRY(tsr_tensor_map(p->g->candidates->logits, &logits));
    *chosen = (int32_t)p->first +
              tsr__split_find_token(row, count, (const float *)logits + i * count, place);
    return TSR_OK;
}

/* Chooses the tokens of all rows. *out is false if all logits are needed, on all ranks alike. */
static tsr_status choose(const pass *p, bool *out)
{
    tsr_generator *g = p->g;
    if (p->sums)
        TSR__TRY(exchange_sums(p));
    for (int i = 0; i < p->rows; i++) {
        const int number = p->numbers[i];
        tsr__split_row row;
        TSR__TRY(describe(p, i, p->sums, &row));
        if (row.kind == TSR__SPLIT_SUMS) {
            TSR__TRY(find_token(p, i, &row));
            continue;
        }
        TSR__TRY(tsr__split_choose(&row, &g->chosen[number]));
        g->candidates->known[number] = g->chosen[number] >= 0;
    }
    for (int i = 0; i < p->rows; i++)
        if (g->chosen[p->numbers[i]] == TSR__CHOSEN_NONE) {
            for (int j = 0; j < p->rows; j++) {
                g->chosen[p->numbers[j]] = TSR__CHOSEN_NONE;
                g->candidates->known[p->numbers[j]] = false;
            }
            return TSR_OK;
        }
    *out = true;
    return TSR_OK;
}

/* Writes the candidates to logits [rows, vocabulary]; all other tokens get −inf. */
static void write_logits(const pass *p, float *logits)
{
    const tsr_generator *g = p->g;
    const int64_t stride = 1 + p->rows * p->most, vocabulary = g->model->config->vocabulary;
    for (int64_t i = 0; i < p->rows * vocabulary; i++)
        logits[i] = -INFINITY;
    for (int r = 0; r < tsr_group_size(g->model->group); r++)
        for (int64_t i = 0; i < p->rows * p->most; i++) {
            const tsr__candidate *one = &g->candidates->all[r * stride + 1 + i];
            if (one->logit != -INFINITY)
                logits[i / p->most * vocabulary + one->token] = one->logit;
        }
}

/* Chooses tokens, or writes logits, from candidates. *out is false if all logits are needed. */
static tsr_status use_candidates(pass *p, float *logits, bool *out)
{
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    bool suffices = false;
    TSR__TRY(tsr_stack_get_info(p->g->model->stack, &info));
    p->first = info.first_logit;
    TSR__TRY(find_own(p));
    TSR__TRY(exchange(p, &suffices));
    if (!suffices)
        return TSR_OK;
    if (!p->g->candidates->with_drafts)
        return choose(p, out);
    write_logits(p, logits);
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
    pass p = {.g = g, .rows = rows, .numbers = numbers};
    if (!g->candidates || !suits(&p))
        return tsr__model_logits(m, features, token, 1, logits);
    tsr_tensor *last = NULL, *own = NULL, *flat = NULL;
    bool done = false;
    TSR__TRY(tsr_tensor_slice(features, 1, token, token + 1, 1, &last));
    tsr_status status = tsr__stack_head_after_blocks(m->stack, last, &own);
    if (status == TSR_OK)
        status = flatten(m, own, rows, &flat);
    p.own = flat;
    if (status == TSR_OK)
        status = use_candidates(&p, logits, &done);
    if (status == TSR_OK && !done)
        status = tsr_stack_gather_logits(m->stack, own, logits);
    tsr_tensor_destroy(&last);
    tsr_tensor_destroy(&own);
    tsr_tensor_destroy(&flat);
    return status;
}
