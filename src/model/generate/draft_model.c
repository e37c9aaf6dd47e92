/* Drafts from a smaller model with the same vocabulary. It computes a few tokens one by one, each
 * of which costs little, and the model then computes them in one pass.
 *
 * The draft_model has a cache of its own, with the tokens of the same sequences. It lags behind: it
 * computes the tokens that a sequence has got since only when drafts of it are wanted. Drafts that
 * were not chosen are taken from its cache then. With prefix_cache of the generator, it keeps
 * pieces of texts, too, unless it has states.
 *
 * On one rank, the device chooses the drafts that are not drawn, and the next pass reads them from
 * its memory, so that the host waits once for all drafts. Several ranks exchange their most likely
 * tokens (draft_choice.c). */
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/clock.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/draft.h"
#include "model/model.h"

#define MOST_NEW 2 /* tokens of each sequence in the first of the passes that find drafts */

/* The tokens of a sequence in the draft_model's cache: the first `seen` tokens of the sequence, and
 * then drafts. */
typedef struct known_text {
    int cache; /* the number of the sequence in the cache */
    int64_t seen;
    int draft_count;
    int32_t drafts[TSR_MAX_DRAFT_TOKENS];
    int64_t whole; /* the first tokens that are in whole blocks, the last of which is `block` */
    int block;
} known_text;

struct tsr__draft_model {
    tsr_model *model;
    tsr_kv_cache *cache;
    tsr__prefix *prefix; /* NULL: pieces of texts are not kept */
    int64_t longest;     /* the most tokens of a sequence */
    double token_ns;     /* of a prompt, in passes of many */
    known_text *texts;   /* [sequences] */
    float *logits;       /* [TSR__DRAFT_SEQUENCES, MOST_NEW, vocabulary] */
    /* [TSR__DRAFT_SEQUENCES] of each draft: the tokens that the device has chosen; NULL: it does
     * not
     */
    tsr_tensor *chosen[TSR_MAX_DRAFT_TOKENS];
    tsr__draft_choice *choice; /* NULL: there is one rank */
};

static void forget_chain(tsr__draft_model *d)
{
    for (int i = 0; i < TSR_MAX_DRAFT_TOKENS; i++)
        tsr_tensor_destroy(&d->chosen[i]);
}

void tsr__draft_model_destroy(tsr__draft_model **model)
{
    tsr__draft_model *d = *model;
    if (!d)
        return;
    tsr__prefix_destroy(&d->prefix);
    tsr_kv_cache_destroy(&d->cache);
    forget_chain(d);
    tsr__draft_choice_destroy(&d->choice);
    tsr__free(d->texts);
    tsr__free(d->logits);
    tsr__free(d);
    *model = NULL;
}

tsr_status tsr__draft_model_create(const tsr_generator *g, tsr__draft_model **out)
{
    const tsr_generator_params *p = &g->params;
    if (!p->draft_model)
        return TSR_OK;
    const size_t sequences = (size_t)p->sequences, most = (size_t)p->draft_tokens,
                 vocabulary = (size_t)g->model->config->vocabulary;
    tsr__draft_model *d = tsr__calloc(1, sizeof *d);
    if (!d)
        return TSR_ERR_NO_MEMORY;
    d->model = p->draft_model;
    d->longest = d->model->config->context < g->longest ? d->model->config->context : g->longest;
    d->texts = tsr__calloc(sequences, sizeof *d->texts);
    d->logits =
        tsr__calloc((size_t)TSR__DRAFT_SEQUENCES * MOST_NEW, vocabulary * sizeof *d->logits);
    tsr_status status = d->texts && d->logits ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__generator_create_cache(g, d->model, &d->cache);
    if (status == TSR_OK)
        status = tsr__draft_choice_create(d->model, &d->choice);
    for (size_t i = 0; i < most && status == TSR_OK && tsr_group_size(d->model->group) == 1; i++)
        status = tsr_tensor_create_host(d->model->device, TSR_I32, 1,
                                        (int64_t[]){TSR__DRAFT_SEQUENCES}, &d->chosen[i]);
    if (status == TSR_OK && p->prefix_cache && !tsr__generator_has_states(d->model))
        status =
            tsr__prefix_create(d->cache, p->piece, g->page_tokens, g->pages, false, &d->prefix);
    for (size_t i = 0; i < sequences && status == TSR_OK; i++) {
        d->texts[i].block = TSR__PREFIX_NONE;
        status = tsr_kv_cache_add(d->cache, -1, &d->texts[i].cache);
    }
    if (status != TSR_OK) {
        tsr__draft_model_destroy(&d);
        return status;
    }
    *out = d;
    return TSR_OK;
}

static void truncate(const tsr_generator *g, tsr__draft_model *d, known_text *t, int64_t length)
{
    t->draft_count = 0;
    t->seen = tsr_kv_cache_restorable(d->cache, t->cache, length);    /* less: see states.c */
    if (tsr_kv_cache_truncate(d->cache, t->cache, t->seen) != TSR_OK) /* not reached */
        tsr__log(TSR_LOG_ERROR, "generator: %s", tsr_last_error());
    for (; t->block != TSR__PREFIX_NONE && t->whole > t->seen; t->whole -= g->params.piece)
        t->block = tsr__prefix_leave_last(d->prefix, t->block);
    if (t->block == TSR__PREFIX_NONE)
        t->whole = 0;
}

void tsr__drafts_forget_prefixes(const tsr_generator *g)
{
    tsr__draft_model *d = g->drafts ? g->drafts->model : NULL;
    if (g->drafts)
        tsr__draft_next_forget_prefixes(g->drafts->next, g->count);
    if (!d || !d->prefix)
        return;
    tsr__prefix_clear(d->prefix);
    for (int i = 0; i < g->count; i++) {
        d->texts[i].block = TSR__PREFIX_NONE;
        truncate(g, d, &d->texts[i], 0);
    }
}

void tsr__draft_model_cut(const tsr_generator *g, int number, int64_t length)
{
    tsr__draft_model *d = g->drafts ? g->drafts->model : NULL;
    if (d && d->texts[number].seen + d->texts[number].draft_count > length)
        truncate(g, d, &d->texts[number],
                 d->texts[number].seen < length ? d->texts[number].seen : length);
}

/* Passes ------------------------------------------------------------------------------------- */

/* Computes `counts[i]` tokens of each of `rows` sequences, with ids [rows, tokens]. Without
 * `logits` [rows, tokens, vocabulary], does not wait. */
static tsr_status run_pass(const tsr__draft_model *d, int rows, const int *cached, int64_t tokens,
                           const int64_t *counts, const int32_t *ids, float *logits)
{
    tsr_tensor *features = NULL;
    TSR__TRY(tsr_kv_cache_begin(d->cache, rows, cached, counts, NULL));
    tsr_status status = tsr__model_forward(d->model, d->cache, rows, tokens, ids, NULL, &features);
    if (status == TSR_OK && logits)
        status = tsr__model_logits(d->model, features, 0, tokens, logits);
    else if (status == TSR_OK)
        status = tsr_stream_submit(d->model->stream);
    tsr_tensor_destroy(&features);
    return status;
}

static int64_t pages_for(const tsr_generator *g, int64_t tokens)
{
    return (tokens + g->page_tokens - 1) / g->page_tokens;
}

/* Takes drafts that were not chosen from the cache. The last token is always computed. */
static void keep_right(tsr_generator *g, const tsr__draft_text *text)
{
    tsr__draft_model *d = g->drafts->model;
    known_text *t = &d->texts[text->number];
    const int32_t *tokens = g->sequences[text->number].tokens;
    int64_t right = t->seen;
    for (int i = 0; i < t->draft_count && right < text->length; i++, right++)
        if (tokens[right] != t->drafts[i])
            break;
    truncate(g, d, t, right < text->length ? right : text->length - 1);
}

/* Gives a text the next pieces of its tokens that the cache has. */
static tsr_status use_blocks(tsr_generator *g, const tsr__draft_text *text)
{
    tsr__draft_model *d = g->drafts->model;
    known_text *t = &d->texts[text->number];
    const int32_t *tokens = g->sequences[text->number].tokens;
    const int64_t piece = g->params.piece, end = text->length - MOST_NEW;
    while (d->prefix && t->whole == t->seen && t->seen + piece <= end) {
        const int block = tsr__prefix_find(d->prefix, 0, t->block, tokens + t->seen);
        if (block == TSR__PREFIX_NONE)
            return TSR_OK;
        TSR__TRY(tsr__prefix_use(d->prefix, block, t->cache, true));
        t->block = block;
        t->seen = t->whole = t->seen + piece;
        g->drafts->found_tokens += piece;
    }
    return TSR_OK;
}

/* Keeps the piece of a text that has been computed last, if it is whole. */
static void keep_block(const tsr_generator *g, known_text *t, const int32_t *tokens)
{
    const tsr__draft_model *d = g->drafts->model;
    if (!d->prefix || t->seen != t->whole + g->params.piece)
        return;
    const int block = tsr__prefix_add(d->prefix, 0, t->block, tokens + t->whole, t->cache);
    if (block == TSR__PREFIX_NONE)
        return;
    t->block = block;
    t->whole = t->seen;
}

/* Computes all tokens of a text but the last MOST_NEW of them. Returns in *ready whether drafts can
 * be found. Steps of generators with `piece` compute at most one piece. */
static tsr_status catch_up(tsr_generator *g, const tsr__draft_text *text, bool *ready)
{
    const tsr__draft_model *d = g->drafts->model;
    known_text *t = &g->drafts->model->texts[text->number];
    const int32_t *tokens = g->sequences[text->number].tokens;
    const int64_t end = text->length - MOST_NEW, piece = g->params.piece, first = t->seen;
    const int64_t last = piece > 0 && end > first + piece ? first + piece : end;
    while (t->seen < last) {
        const int64_t left = last - t->seen,
                      most = left < g->params.prefill ? left : g->params.prefill,
                      inside = d->prefix ? piece - t->seen % piece : most,
                      count = most < inside ? most : inside;
        TSR__TRY(run_pass(d, 1, &t->cache, count, &count, tokens + t->seen, NULL));
        t->seen += count;
        keep_block(g, t, tokens);
    }
    *ready = last >= end;
    return *ready && first < last ? tsr_stream_wait(d->model->stream) : TSR_OK;
}

/* Drafts ------------------------------------------------------------------------------------- */

/* Computes the last drafts of the texts that need more of them: some[*rows], which becomes these.
 */
static tsr_status feed_drafts(tsr__draft_model *d, tsr__draft_text **some, int *rows)
{
    int cached[TSR__DRAFT_SEQUENCES], more = 0;
    int64_t counts[TSR__DRAFT_SEQUENCES];
    int32_t ids[TSR__DRAFT_SEQUENCES];
    for (int i = 0; i < *rows; i++) {
        if (some[i]->count == some[i]->most)
            continue;
        cached[more] = d->texts[some[i]->number].cache;
        ids[more] = some[i]->ids[some[i]->count - 1];
        counts[more] = 1;
        some[more++] = some[i];
    }
    *rows = more;
    if (more == 0)
        return TSR_OK;
    TSR__TRY(run_pass(d, more, cached, 1, counts, ids, d->logits));
    for (int i = 0; i < more; i++) {
        known_text *t = &d->texts[some[i]->number];
        t->drafts[t->draft_count++] = ids[i];
    }
    return TSR_OK;
}

/* Finds drafts of texts of which only the last one or two tokens are not in the cache. */
static tsr_status find(tsr_generator *g, int rows, tsr__draft_text **some)
{
    tsr__draft_model *d = g->drafts->model;
    const size_t vocabulary = (size_t)g->model->config->vocabulary;
    int cached[TSR__DRAFT_SEQUENCES];
    int64_t counts[TSR__DRAFT_SEQUENCES], tokens = 1;
    int32_t ids[TSR__DRAFT_SEQUENCES * MOST_NEW] = {0};
    for (int i = 0; i < rows; i++) {
        const known_text *t = &d->texts[some[i]->number];
        cached[i] = t->cache;
        counts[i] = some[i]->length - t->seen;
        tokens = counts[i] > tokens ? counts[i] : tokens;
    }
    for (int i = 0; i < rows; i++)
        memcpy(ids + i * tokens, g->sequences[some[i]->number].tokens + some[i]->length - counts[i],
               (size_t)counts[i] * sizeof *ids);
    TSR__TRY(run_pass(d, rows, cached, tokens, counts, ids, d->logits));
    for (int i = 0; i < rows; i++) {
        d->texts[some[i]->number].seen = some[i]->length;
        TSR__TRY(tsr__drafts_add(g, some[i],
                                 d->logits + (size_t)(i * tokens + counts[i] - 1) * vocabulary));
    }
    for (;;) {
        TSR__TRY(feed_drafts(d, some, &rows));
        if (rows == 0)
            return TSR_OK;
        for (int i = 0; i < rows; i++)
            TSR__TRY(tsr__drafts_add(g, some[i], d->logits + (size_t)i * vocabulary));
    }
}

/* Drafts that the device or several ranks choose --------------------------------------------- */

/* Chooses the most likely tokens after logits [rows, 1, …] with the other ranks, adds them to the
 * texts, and uploads them: *ids. */
static tsr_status choose_together(const tsr__draft_model *d, int rows, tsr__draft_text **some,
                                  const tsr_tensor *logits, tsr_tensor **ids)
{
    const tsr_model *m = d->model;
    int32_t tokens[TSR__DRAFT_SEQUENCES];
    TSR__TRY(tsr__draft_choose(d->choice, m, rows, logits, tokens));
    for (int i = 0; i < rows; i++)
        some[i]->ids[some[i]->count++] = tokens[i];
    TSR__TRY(tsr_tensor_create(m->device, TSR_I32, 2, (int64_t[]){rows, 1}, ids));
    return tsr_tensor_upload(m->stream, *ids, tokens, (uint64_t)rows * sizeof *tokens);
}

/* Records a pass of one token of each of `rows` texts, *ids, and the choice of draft number
 * `draft`, which *ids become. */
static tsr_status record_pass(const tsr__draft_model *d, int rows, tsr__draft_text **some,
                              const int *cached, int draft, tsr_tensor **ids)
{
    const int64_t counts[TSR__DRAFT_SEQUENCES] = {1, 1, 1, 1, 1, 1, 1, 1};
    tsr_tensor *features = NULL, *logits = NULL, *next = NULL;
    TSR__TRY(tsr_kv_cache_begin(d->cache, rows, cached, counts, NULL));
    tsr_status status = tsr__stack_blocks_cached(d->model->stack, *ids, d->cache, &features);
    if (status == TSR_OK)
        status = tsr__stack_head_after_blocks(d->model->stack, features, &logits);
    if (status == TSR_OK)
        status = d->choice
                     ? choose_together(d, rows, some, logits, &next)
                     : tsr__drafts_record_choice(d->model, rows, logits, d->chosen[draft], &next);
    tsr_tensor_destroy(&features);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(ids);
    *ids = next;
    return status;
}

/* Computes the tokens of texts that have more than one to compute, without their last ones. */
static tsr_status feed_firsts(tsr_generator *g, int rows, tsr__draft_text **some)
{
    tsr__draft_model *d = g->drafts->model;
    int cached[TSR__DRAFT_SEQUENCES], count = 0;
    int64_t counts[TSR__DRAFT_SEQUENCES];
    int32_t ids[TSR__DRAFT_SEQUENCES];
    for (int i = 0; i < rows; i++) {
        known_text *t = &d->texts[some[i]->number];
        if (some[i]->length - t->seen < MOST_NEW)
            continue;
        cached[count] = t->cache;
        counts[count] = 1;
        ids[count++] = g->sequences[some[i]->number].tokens[t->seen++];
    }
    return count > 0 ? run_pass(d, count, cached, 1, counts, ids, NULL) : TSR_OK;
}

/* Records the passes that find `most` drafts of each text, and submits them. */
static tsr_status record_chain(tsr_generator *g, int rows, tsr__draft_text **some, int most)
{
    tsr__draft_model *d = g->drafts->model;
    const tsr_model *m = d->model;
    int cached[TSR__DRAFT_SEQUENCES];
    int32_t last[TSR__DRAFT_SEQUENCES];
    tsr_tensor *ids = NULL;
    TSR__TRY(feed_firsts(g, rows, some));
    for (int i = 0; i < rows; i++) {
        known_text *t = &d->texts[some[i]->number];
        cached[i] = t->cache;
        last[i] = g->sequences[some[i]->number].tokens[t->seen];
    }
    TSR__TRY(tsr_tensor_create(m->device, TSR_I32, 2, (int64_t[]){rows, 1}, &ids));
    tsr_status status = tsr_tensor_upload(m->stream, ids, last, (uint64_t)rows * sizeof *last);
    for (int t = 0; t < most && status == TSR_OK; t++)
        status = record_pass(d, rows, some, cached, t, &ids);
    tsr_tensor_destroy(&ids);
    return status == TSR_OK ? tsr_stream_submit(m->stream) : status;
}

/* Reads the drafts. */
static tsr_status read_chain(tsr__draft_model *d, int rows, tsr__draft_text **some, int most)
{
    TSR__TRY(tsr_stream_wait(d->model->stream));
    if (!d->choice)
        TSR__TRY(tsr__drafts_read_chosen(d->chosen, rows, some, most));
    for (int i = 0; i < rows; i++) {
        known_text *known = &d->texts[some[i]->number];
        known->seen = some[i]->length;
        known->draft_count = some[i]->count < most ? some[i]->count : most - 1;
        memcpy(known->drafts, some[i]->ids, (size_t)known->draft_count * sizeof *known->drafts);
    }
    return TSR_OK;
}

/* Finds drafts of which none is drawn: on one rank without waiting for each, on several without
 * gathering logits. *done is false if the device cannot choose them; the cache is as before then.
 */
static tsr_status find_by_chain(tsr_generator *g, int rows, tsr__draft_text **some, bool *done)
{
    tsr__draft_model *d = g->drafts->model;
    int most = TSR_MAX_DRAFT_TOKENS;
    for (int i = 0; i < rows; i++) {
        if (some[i]->drawn || (!d->chosen[0] && !d->choice))
            return TSR_OK;
        most = some[i]->most < most ? some[i]->most : most;
    }
    const tsr_status status = record_chain(g, rows, some, most);
    if (status == TSR_ERR_UNSUPPORTED && !d->choice) {
        tsr__log(TSR_LOG_WARNING, "generator: the host chooses the drafts: %s", tsr_last_error());
        forget_chain(d);
        for (int i = 0; i < rows; i++)
            truncate(g, d, &d->texts[some[i]->number], d->texts[some[i]->number].seen);
        return TSR_OK;
    }
    TSR__TRY(status);
    *done = true;
    return read_chain(d, rows, some, most);
}

/* Returns how many pages a text needs that it does not have. */
static int64_t pages_lacking(const tsr_generator *g, const tsr__draft_text *text)
{
    const tsr__draft_model *d = g->drafts->model;
    const int64_t held = tsr_kv_cache_length(d->cache, d->texts[text->number].cache);
    return pages_for(g, text->length + text->most) - pages_for(g, held);
}

tsr_status tsr__draft_model_find(tsr_generator *g, int count, tsr__draft_text *texts)
{
    tsr__drafts *all = g->drafts;
    const tsr__draft_model *d = all->model;
    tsr__draft_text *some[TSR__DRAFT_SEQUENCES];
    const uint64_t start = tsr__now_ns();
    bool behind = false;
    int rows = 0;
    for (int i = 0; i < count; i++) {
        tsr__draft_text *text = &texts[i];
        const int64_t room = d->longest - text->length;
        tsr__drafts_begin_text(g, text);
        text->most = text->most < room ? text->most : (int)room;
        if (text->most <= 0)
            continue;
        keep_right(g, text);
        TSR__TRY(use_blocks(g, text));
    }
    const int64_t piece_pages = pages_for(g, g->params.piece);
    int64_t free_pages = tsr_kv_cache_free_pages(d->cache);
    for (int i = 0; i < count; i++) {
        const int64_t lacking = texts[i].most > 0 ? pages_lacking(g, &texts[i]) : 0;
        bool ready = false;
        while (lacking > free_pages && d->prefix && tsr__prefix_evict(d->prefix))
            free_pages += piece_pages;
        if (texts[i].most <= 0 || rows == TSR__DRAFT_SEQUENCES || lacking > free_pages)
            continue;
        free_pages -= lacking;
        TSR__TRY(catch_up(g, &texts[i], &ready));
        if (ready)
            some[rows++] = &texts[i];
        behind = behind || !ready;
    }
    const uint64_t lag = tsr__now_ns() - start;
    all->lag_ns += lag;
    all->behind = behind;
    bool done = rows == 0;
    if (!done)
        TSR__TRY(find_by_chain(g, rows, some, &done));
    if (!done)
        TSR__TRY(find(g, rows, some));
    all->find_ns = tsr__now_ns() - start - lag;
    g->stats.draft_ns += lag + all->find_ns;
    return TSR_OK;
}

/* Before the first text ------------------------------------------------------------------------ */

/* Computes a prompt of many tokens twice, of which the second pass is measured. */
static tsr_status measure_prompt(const tsr_generator *g, int number)
{
    tsr__draft_model *d = g->drafts->model;
    const known_text *t = &d->texts[number];
    const int64_t count = g->params.prefill < d->longest ? g->params.prefill : d->longest;
    if (pages_for(g, count) > tsr_kv_cache_free_pages(d->cache))
        return TSR_OK;
    int32_t *ids = tsr__calloc((size_t)count, sizeof *ids);
    if (!ids)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = TSR_OK;
    for (int i = 0; i < 2 && status == TSR_OK; i++) {
        const uint64_t start = tsr__now_ns();
        status = run_pass(d, 1, &t->cache, count, &count, ids, NULL);
        if (status == TSR_OK)
            status = tsr_stream_wait(d->model->stream);
        if (status == TSR_OK)
            status = tsr_kv_cache_truncate(d->cache, t->cache, 0);
        d->token_ns = (double)(tsr__now_ns() - start) / (double)count;
    }
    tsr__free(ids);
    return status;
}

tsr_status tsr__draft_model_warm_up(tsr_generator *g, tsr__draft_text *text)
{
    tsr__drafts *all = g->drafts;
    int32_t *tokens = g->sequences[text->number].tokens + text->length, kept[TSR_MAX_DRAFT_TOKENS];
    const size_t bytes = (size_t)text->most * sizeof *kept;
    TSR__TRY(measure_prompt(g, text->number));
    memcpy(kept, tokens, bytes); /* drafts that are drawn are written there */
    const tsr_status status = tsr__draft_model_find(g, 1, text);
    memcpy(tokens, kept, bytes);
    truncate(g, all->model, &all->model->texts[text->number], 0);
    all->lag_ns = 0;
    return status;
}

double tsr__draft_model_catching_up_ns(const tsr_generator *g)
{
    const tsr__draft_model *d = g->drafts->model;
    int64_t tokens = 0;
    for (int i = 0; d && i < g->count; i++) {
        const tsr__sequence *s = &g->sequences[i];
        if (s->used && s->finish == TSR_FINISH_NONE && s->length > d->texts[i].seen)
            tokens += s->length - d->texts[i].seen;
    }
    return d ? (double)tokens * d->token_ns : 0;
}
