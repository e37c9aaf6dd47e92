/* Drafts from the model's own layer that predicts further tokens (stack/next.c), which the last
 * stage of a model has. The layer has a cache of its own. At place p of a text, it is computed from
 * the features after the model's blocks at token p and from the embedding of token p + 1, and
 * predicts token p + 2. A text of which only the last token is not in the model's cache has all of
 * that up to the token before its last one. The first draft is predicted there, and the others one
 * after the other from the layer's own output.
 *
 * Passes of a prompt compute the layer for its tokens, too. The features of later tokens are kept,
 * and the layer catches up before drafts are found, or when there is no more room for them.
 *
 * With prefix_cache of the generator, the layer's cache keeps the same pieces of prompts. The last
 * place of a piece has the token that followed it then, which may be another one now.
 *
 * If features are missing, because a piece has left, or the cache has no room, the layer begins at
 * a later place. It then knows less of the text, and finds worse drafts. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/draft.h"
#include "model/model.h"

#define KEPT TSR__NEXT_FEATURES
#define MOST_NEW 8 /* places of each sequence in the first of the passes that find drafts */

/* What there is of a sequence: places `begin` to `fed` − 1 are in the layer's cache, perhaps with
 * drafts behind them, and features of places `kept` to `end` − 1 are in `features`. */
typedef struct known_text {
    int cache; /* the number of the sequence in the cache */
    int64_t begin, fed, kept, end;
    int64_t whole; /* the first tokens that are in whole blocks, the last of which is `block` */
    int block;
} known_text;

struct tsr__draft_next {
    tsr_model *model;
    tsr_kv_cache *cache;
    tsr__prefix *prefix;  /* NULL: pieces of prompts are not kept */
    int64_t piece;        /* the tokens of one */
    known_text *texts;    /* [sequences] */
    tsr_tensor *features; /* [sequences · KEPT, width]: of place p in row p % KEPT of a sequence */
    float *logits;        /* [TSR__DRAFT_SEQUENCES, vocabulary] */
    /* [TSR__DRAFT_SEQUENCES] of each draft: the tokens that the device has chosen; NULL: it does
     * not */
    tsr_tensor *chosen[TSR_MAX_DRAFT_TOKENS];
    tsr__draft_choice *choice; /* NULL: there is one rank */
};

/* Creating ----------------------------------------------------------------------------------- */

static void forget_chosen(tsr__draft_next *d)
{
    for (int i = 0; i < TSR_MAX_DRAFT_TOKENS; i++)
        tsr_tensor_destroy(&d->chosen[i]);
}

void tsr__draft_next_destroy(tsr__draft_next **next)
{
    tsr__draft_next *d = *next;
    if (!d)
        return;
    tsr__prefix_destroy(&d->prefix);
    tsr_kv_cache_destroy(&d->cache);
    forget_chosen(d);
    tsr__draft_choice_destroy(&d->choice);
    tsr_tensor_destroy(&d->features);
    tsr__free(d->texts);
    tsr__free(d->logits);
    tsr__free(d);
    *next = NULL;
}

static tsr_status create_cache(const tsr_generator *g, tsr_kv_cache **out)
{
    const tsr_model *m = g->model;
    tsr_heads heads = TSR_INIT(tsr_heads);
    TSR__TRY(tsr_self_attention_get_heads(m->stack->next.block, &heads));
    return tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = m->stream, .layers = 1, .layer_kv_heads = &heads.kv_count,
                            .layer_head_dims = &heads.head_dim,
                            .layer_value_dims = &heads.value_dim,
                            .layer_values_in_keys = &heads.values_in_keys,
                            .dtype = g->params.cache_dtype, .page_tokens = g->page_tokens,
                            .pages = g->pages, .sequences = g->params.sequences),
        out);
}

static tsr_status create(const tsr_generator *g, tsr__draft_next *d)
{
    const tsr_model *m = d->model;
    const int64_t sequences = g->params.sequences, shape[2] = {sequences * KEPT, m->config->width};
    d->texts = tsr__calloc((size_t)sequences, sizeof *d->texts);
    d->logits =
        tsr__calloc(TSR__DRAFT_SEQUENCES, (size_t)m->config->vocabulary * sizeof *d->logits);
    if (!d->texts || !d->logits)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(create_cache(g, &d->cache));
    TSR__TRY(tsr__draft_choice_create(m, &d->choice));
    TSR__TRY(tsr_tensor_create(m->device, TSR_F32, 2, shape, &d->features));
    for (int i = 0; i < g->params.draft_tokens && tsr_group_size(m->group) == 1; i++)
        TSR__TRY(tsr_tensor_create_host(m->device, TSR_I32, 1, (int64_t[]){TSR__DRAFT_SEQUENCES},
                                        &d->chosen[i]));
    for (int i = 0; i < sequences; i++) {
        d->texts[i].block = TSR__PREFIX_NONE;
        TSR__TRY(tsr_kv_cache_add(d->cache, -1, &d->texts[i].cache));
    }
    d->piece = g->params.piece;
    return g->params.prefix_cache
               ? tsr__prefix_create(d->cache, d->piece, g->page_tokens, g->pages, false, &d->prefix)
               : TSR_OK;
}

tsr_status tsr__draft_next_create(const tsr_generator *g, tsr__draft_next **out)
{
    tsr__draft_next *d = tsr__calloc(1, sizeof *d);
    if (!d)
        return TSR_ERR_NO_MEMORY;
    d->model = g->model;
    const tsr_status status = create(g, d);
    if (status == TSR_OK)
        *out = d;
    else
        tsr__draft_next_destroy(&d);
    return status;
}

/* What there is ------------------------------------------------------------------------------ */

/* Takes all places from number `fed` on, and drafts, from the layer's cache. */
static void truncate(tsr__draft_next *d, known_text *t)
{
    if (tsr_kv_cache_truncate(d->cache, t->cache, t->fed - t->begin) != TSR_OK) /* not reached */
        tsr__log(TSR_LOG_ERROR, "generator: %s", tsr_last_error());
    for (; t->block != TSR__PREFIX_NONE && t->whole > t->fed; t->whole -= d->piece)
        t->block = tsr__prefix_leave_last(d->prefix, t->block);
    t->whole = t->block == TSR__PREFIX_NONE ? 0 : t->whole;
}

/* Forgets all places. The first one that will be known is `place`. */
static void begin_at(tsr__draft_next *d, known_text *t, int64_t place)
{
    tsr__prefix_leave(d->prefix, t->block);
    t->block = TSR__PREFIX_NONE;
    t->begin = t->fed = t->kept = t->end = place;
    truncate(d, t);
}

/* Forgets places from `fed` on, and features from `end` on. */
static void forget(tsr__draft_next *d, known_text *t, int64_t fed, int64_t end)
{
    if (fed < t->begin) {
        begin_at(d, t, end);
        return;
    }
    t->fed = t->fed < fed ? t->fed : fed;
    t->end = t->end < end ? t->end : end;
    t->kept = t->kept < t->end ? t->kept : t->end;
    truncate(d, t);
}

void tsr__draft_next_cut(const tsr_generator *g, int number, int64_t length)
{
    tsr__draft_next *d = g->drafts ? g->drafts->next : NULL;
    if (d) /* a place needs the token after it */
        forget(d, &d->texts[number], length > 0 ? length - 1 : 0, length);
}

void tsr__draft_next_forget_prefixes(tsr__draft_next *d, int sequences)
{
    if (!d || !d->prefix)
        return;
    tsr__prefix_clear(d->prefix);
    for (int i = 0; i < sequences; i++) {
        d->texts[i].block = TSR__PREFIX_NONE;
        begin_at(d, &d->texts[i], d->texts[i].end);
    }
}

/* Returns whether the layer can go on from where it is to the features that are kept. */
static bool is_whole(const known_text *t)
{
    return t->kept <= t->fed && t->fed <= t->end;
}

/* Returns how many pages so many more places of a text need. */
static int64_t pages_for(const tsr_generator *g, const known_text *t, int64_t more)
{
    const int64_t each = g->page_tokens,
                  held = tsr_kv_cache_length(g->drafts->next->cache, t->cache),
                  pages = (t->fed - t->begin + more + each - 1) / each - (held + each - 1) / each;
    return pages > 0 ? pages : 0;
}

/* Returns whether the cache has so many free pages. Pieces of prompts that no text uses leave it
 * for that. */
static bool has_pages(const tsr__draft_next *d, int64_t pages)
{
    while (pages > tsr_kv_cache_free_pages(d->cache))
        if (!d->prefix || !tsr__prefix_evict(d->prefix))
            return false;
    return true;
}

/* Pieces of prompts -------------------------------------------------------------------------- */

/* Gives a text the pieces of a prompt up to place `end` that the model has found in its prefix
 * cache, if the layer's cache has all of them. */
static tsr_status use_blocks(tsr_generator *g, int number, int64_t end)
{
    tsr__draft_next *d = g->drafts->next;
    known_text *t = &d->texts[number];
    const tsr__sequence *s = &g->sequences[number];
    while (d->prefix && t->begin == 0 && t->fed == t->whole && t->fed < end) {
        const int block =
            tsr__prefix_find(d->prefix, tsr__generator_chain(g, s), t->block, s->tokens + t->fed);
        if (block == TSR__PREFIX_NONE)
            return TSR_OK;
        TSR__TRY(tsr__prefix_use(d->prefix, block, t->cache, true));
        t->block = block;
        t->fed = t->whole = t->fed + d->piece;
        g->drafts->found_tokens += d->piece;
    }
    if (t->fed == end)
        t->kept = t->end = end;
    return TSR_OK;
}

/* Keeps the piece of a prompt that has been computed last, if it is whole. */
static void keep_block(const tsr_generator *g, int number)
{
    const tsr__draft_next *d = g->drafts->next;
    known_text *t = &g->drafts->next->texts[number];
    const tsr__sequence *s = &g->sequences[number];
    if (!d->prefix || t->begin > 0 || t->fed != t->whole + d->piece)
        return;
    const int block = tsr__prefix_add(d->prefix, tsr__generator_chain(g, s), t->block,
                                      s->tokens + t->whole, t->cache);
    if (block == TSR__PREFIX_NONE)
        return;
    t->block = block;
    t->whole = t->fed;
}

/* Features ----------------------------------------------------------------------------------- */

/* Copies features between a tensor `flat` [places, width], from row `at` on, and those that are
 * kept of places first … first + count − 1. */
static tsr_status copy_features(const tsr__draft_next *d, int number, int64_t first, int64_t count,
                                const tsr_tensor *flat, int64_t at, bool keeps)
{
    tsr_status status = TSR_OK;
    for (int64_t done = 0, some; done < count && status == TSR_OK; done += some) {
        const int64_t row = (first + done) % KEPT, start = (int64_t)number * KEPT + row;
        tsr_tensor *inside = NULL, *outside = NULL;
        some = count - done < KEPT - row ? count - done : KEPT - row;
        status = tsr_tensor_slice(d->features, 0, start, start + some, 1, &inside);
        if (status == TSR_OK)
            status = tsr_tensor_slice(flat, 0, at + done, at + done + some, 1, &outside);
        if (status == TSR_OK)
            status = tsr_copy(d->model->stream, keeps ? inside : outside, keeps ? outside : inside);
        tsr_tensor_destroy(&inside);
        tsr_tensor_destroy(&outside);
    }
    return status;
}

/* Computes the layer for `count` places of one text from x [1, count, width], without predicting,
 * and does not wait. Without room in the cache, the layer begins behind them. */
static tsr_status feed(tsr_generator *g, int number, int64_t count, const tsr_tensor *x)
{
    tsr__draft_next *d = g->drafts->next;
    const tsr_model *m = d->model;
    known_text *t = &d->texts[number];
    tsr_tensor *ids = NULL, *y = NULL;
    if (!has_pages(d, pages_for(g, t, count))) {
        begin_at(d, t, t->fed + count);
        return TSR_OK;
    }
    TSR__TRY(tsr_tensor_create(m->device, TSR_I32, 2, (int64_t[]){1, count}, &ids));
    tsr_status status = tsr_tensor_upload(m->stream, ids, g->sequences[number].tokens + t->fed + 1,
                                          (uint64_t)count * sizeof *g->sequences[number].tokens);
    if (status == TSR_OK)
        status = tsr_kv_cache_begin(d->cache, 1, &t->cache, &count, NULL);
    if (status == TSR_OK)
        status = tsr__stack_next_forward(m->stack, ids, x, false, d->cache, &y);
    tsr_tensor_destroy(&ids);
    tsr_tensor_destroy(&y);
    if (status == TSR_OK) {
        t->fed += count;
        keep_block(g, number);
    } else {
        truncate(d, t);
    }
    return status == TSR_OK ? tsr_stream_submit(m->stream) : status;
}

/* The same for the next places whose features are kept. */
static tsr_status feed_kept(tsr_generator *g, int number, int64_t count)
{
    const tsr__draft_next *d = g->drafts->next;
    const known_text *t = &d->texts[number];
    const int64_t width = d->model->config->width;
    tsr_tensor *x = NULL, *flat = NULL;
    TSR__TRY(tsr_tensor_create(d->model->device, TSR_F32, 3, (int64_t[]){1, count, width}, &x));
    tsr_status status = tsr_tensor_reshape(x, 2, (int64_t[]){count, width}, &flat);
    if (status == TSR_OK)
        status = copy_features(d, number, t->fed, count, flat, 0, false);
    if (status == TSR_OK)
        status = feed(g, number, count, x);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&flat);
    return status;
}

/* Keeps features of places first … first + count − 1, rows `at` … of `flat` [places, width]. */
static tsr_status keep(tsr_generator *g, int number, int64_t first, int64_t count,
                       const tsr_tensor *flat, int64_t at)
{
    tsr__draft_next *d = g->drafts->next;
    known_text *t = &d->texts[number];
    const int64_t length = g->sequences[number].length, end = first + count,
                  ready = (first < length - 1 ? first : length - 1) - t->fed;
    if (end - t->fed > KEPT && ready > 0)
        TSR__TRY(feed_kept(g, number, ready));
    if (t->end != first) /* there was no room */
        begin_at(d, t, first);
    TSR__TRY(copy_features(d, number, first, count, flat, at, true));
    t->end = end;
    t->kept = t->kept > end - KEPT ? t->kept : end - KEPT;
    return TSR_OK;
}

/* Keeps what a pass has computed for `count` tokens of a sequence from place `first` on: row `row`
 * of features. */
static tsr_status keep_text(tsr_generator *g, int number, int64_t first, int64_t count, int row,
                            const tsr_tensor *features)
{
    tsr__draft_next *d = g->drafts->next;
    known_text *t = &d->texts[number];
    const int64_t length = g->sequences[number].length, width = d->model->config->width;
    tsr_tensor *own = NULL, *some = NULL, *flat = NULL;
    int64_t known = length - 1 - first; /* of these tokens have a token after them */
    known = known < 0 ? 0 : known < count ? known : count;
    forget(d, t, first, first);
    if (t->end < first)
        TSR__TRY(use_blocks(g, number, first));
    if (t->end < first || !is_whole(t))
        begin_at(d, t, first);
    tsr_status status = tsr_tensor_slice(features, 0, row, row + 1, 1, &own);
    if (status == TSR_OK && known > 0 && t->fed < first)
        status = feed_kept(g, number, first - t->fed);
    if (status == TSR_OK && known > 0)
        status = tsr_tensor_slice(own, 1, 0, known, 1, &some);
    if (status == TSR_OK && known > 0)
        status = feed(g, number, known, some);
    if (status == TSR_OK && known > 0)
        t->kept = t->end = t->fed;
    if (status == TSR_OK && known < count)
        status = tsr_tensor_reshape(
            own, 2, (int64_t[]){tsr_tensor_layout(features)->shape[1], width}, &flat);
    if (status == TSR_OK && known < count)
        status = keep(g, number, first + known, count - known, flat, known);
    tsr_tensor_destroy(&own);
    tsr_tensor_destroy(&some);
    tsr_tensor_destroy(&flat);
    return status;
}

tsr_status tsr__drafts_keep_features(tsr_generator *g, int rows, const int *numbers, int64_t step,
                                     const int64_t *counts, int64_t ahead,
                                     const tsr_tensor *features)
{
    /* Passes with more sequences have no drafts. */
    if (!g->drafts || !g->drafts->next || rows > TSR__DRAFT_SEQUENCES)
        return TSR_OK;
    for (int i = 0; i < rows; i++) {
        const int number = numbers[i * step];
        TSR__TRY(keep_text(g, number, g->sequences[number].seen + ahead,
                           counts ? counts[i] : tsr_tensor_layout(features)->shape[1], i,
                           features));
    }
    return TSR_OK;
}

/* Drafts ------------------------------------------------------------------------------------- */

/* The texts for which drafts are found together. */
typedef struct finding {
    tsr_generator *g;
    int rows, most; /* texts, and drafts of each */
    int64_t pages;  /* that the texts need */
    tsr__draft_text *some[TSR__DRAFT_SEQUENCES];
    int cached[TSR__DRAFT_SEQUENCES];
    bool drawn;     /* a draft is drawn, which needs all logits */
    bool on_device; /* which chooses the drafts */
} finding;

/* Uploads ids [rows, tokens]. */
static tsr_status upload_ids(const tsr_model *m, int rows, int64_t tokens, const int32_t *ids,
                             tsr_tensor **out)
{
    TSR__TRY(tsr_tensor_create(m->device, TSR_I32, 2, (int64_t[]){rows, tokens}, out));
    const tsr_status status =
        tsr_tensor_upload(m->stream, *out, ids, (uint64_t)(rows * tokens) * sizeof *ids);
    if (status != TSR_OK)
        tsr_tensor_destroy(out);
    return status;
}

/* Computes the layer for `counts[i]` places of each text, and gives the features of the last ones:
 * *last [rows, 1, width]. The first text gets `tokens` places, as many as the pass has. */
static tsr_status run_first(const finding *f, int64_t tokens, const int64_t *counts,
                            const int32_t *ids, const tsr_tensor *x, tsr_tensor **last)
{
    tsr__draft_next *d = f->g->drafts->next;
    const tsr_model *m = d->model;
    const int64_t rows = f->rows, width = m->config->width;
    int32_t places[TSR__DRAFT_SEQUENCES];
    int64_t filled[TSR__DRAFT_SEQUENCES];
    tsr_tensor *next = NULL, *y = NULL, *flat = NULL, *picked = NULL, *of = NULL;
    memcpy(filled, counts, (size_t)rows * sizeof *filled);
    filled[0] = tokens;
    tsr_status status = upload_ids(m, f->rows, tokens, ids, &next);
    if (status == TSR_OK)
        status = tsr_kv_cache_begin(d->cache, f->rows, f->cached, filled, NULL);
    if (status == TSR_OK)
        status = tsr__stack_next_forward(m->stack, next, x, false, d->cache, &y);
    if (status == TSR_OK && tokens == 1) {
        *last = y;
        y = NULL;
    } else if (status == TSR_OK) {
        for (int i = 0; i < f->rows; i++)
            places[i] = (int32_t)(i * tokens + counts[i] - 1);
        status = tsr_tensor_create(m->device, TSR_I32, 1, &rows, &of);
        if (status == TSR_OK)
            status = tsr_tensor_upload(m->stream, of, places, (uint64_t)rows * sizeof *places);
        if (status == TSR_OK)
            status = tsr_tensor_reshape(y, 2, (int64_t[]){rows * tokens, width}, &flat);
        if (status == TSR_OK)
            status = tsr_tensor_create(m->device, TSR_F32, 2, (int64_t[]){rows, width}, &picked);
        if (status == TSR_OK)
            status = tsr_index_select(m->stream, picked, flat, 0, of);
        if (status == TSR_OK)
            status = tsr_tensor_reshape(picked, 3, (int64_t[]){rows, 1, width}, last);
    }
    tsr_tensor_destroy(&next);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&picked);
    tsr_tensor_destroy(&of);
    return status;
}

/* Computes the places of texts up to the one before the last token. */
static tsr_status run_known(const finding *f, tsr_tensor **last)
{
    tsr__draft_next *d = f->g->drafts->next;
    const tsr_model *m = d->model;
    const int64_t width = m->config->width;
    int64_t counts[TSR__DRAFT_SEQUENCES], tokens = 1, longest = 1;
    int32_t ids[TSR__DRAFT_SEQUENCES * MOST_NEW] = {0};
    tsr_tensor *x = NULL, *flat = NULL;
    for (int i = 0; i < f->rows; i++) {
        const known_text *t = &d->texts[f->some[i]->number];
        counts[i] = t->end - t->fed;
        longest = counts[i] > longest ? counts[i] : longest;
    }
    while (tokens < longest) /* few numbers of rows, so that few kernels are built */
        tokens *= 2;
    TSR__TRY(tsr_tensor_create(m->device, TSR_F32, 3, (int64_t[]){f->rows, tokens, width}, &x));
    tsr_status status = tokens > 1 ? tsr_fill(m->stream, x, 0) : TSR_OK;
    if (status == TSR_OK)
        status = tsr_tensor_reshape(x, 2, (int64_t[]){f->rows * tokens, width}, &flat);
    for (int i = 0; i < f->rows && status == TSR_OK; i++) {
        const int number = f->some[i]->number;
        const int64_t fed = d->texts[number].fed;
        memcpy(ids + i * tokens, f->g->sequences[number].tokens + fed + 1,
               (size_t)counts[i] * sizeof *ids);
        status = copy_features(d, number, fed, counts[i], flat, i * tokens, false);
    }
    if (status == TSR_OK)
        status = run_first(f, tokens, counts, ids, x, last);
    if (status == TSR_OK) { /* the next place of the first text is behind the known ones */
        const known_text *t = &d->texts[f->some[0]->number];
        status = tsr_kv_cache_truncate(d->cache, t->cache, t->end - t->begin);
    }
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&flat);
    return status;
}

/* Chooses draft number `draft` of all texts from this rank's logits: *ids [rows, 1]. */
static tsr_status choose(const finding *f, int draft, const tsr_tensor *logits, tsr_tensor **ids)
{
    const tsr__draft_next *d = f->g->drafts->next;
    const tsr_model *m = d->model;
    const size_t vocabulary = (size_t)m->config->vocabulary;
    int32_t tokens[TSR__DRAFT_SEQUENCES];
    if (f->on_device)
        return tsr__drafts_record_choice(m, f->rows, logits, d->chosen[draft], ids);
    if (d->choice && !f->drawn) {
        TSR__TRY(tsr__draft_choose(d->choice, m, f->rows, logits, tokens));
        for (int i = 0; i < f->rows; i++)
            f->some[i]->ids[f->some[i]->count++] = tokens[i];
        return upload_ids(m, f->rows, 1, tokens, ids);
    }
    TSR__TRY(tsr_stack_gather_logits(m->stack, logits, d->logits));
    for (int i = 0; i < f->rows; i++) {
        TSR__TRY(tsr__drafts_add(f->g, f->some[i], d->logits + (size_t)i * vocabulary));
        tokens[i] = f->some[i]->ids[draft];
    }
    return upload_ids(m, f->rows, 1, tokens, ids);
}

/* Computes the layer for one draft of each text, from its own output. */
static tsr_status run_draft(const finding *f, const tsr_tensor *ids, const tsr_tensor *hidden,
                            tsr_tensor **features)
{
    const int64_t counts[TSR__DRAFT_SEQUENCES] = {1, 1, 1, 1, 1, 1, 1, 1};
    tsr__draft_next *d = f->g->drafts->next;
    TSR__TRY(tsr_kv_cache_begin(d->cache, f->rows, f->cached, counts, NULL));
    return tsr__stack_next_forward(d->model->stack, ids, hidden, true, d->cache, features);
}

/* Finds drafts one after the other, the first of them from *features, which are destroyed. */
static tsr_status run_chain(const finding *f, tsr_tensor **features)
{
    tsr_status status = TSR_OK;
    for (int t = 0; t < f->most && status == TSR_OK; t++) {
        tsr_tensor *hidden = NULL, *logits = NULL, *ids = NULL;
        status = tsr__stack_next_logits(f->g->model->stack, *features, &hidden, &logits);
        if (status == TSR_OK)
            status = choose(f, t, logits, &ids);
        tsr_tensor_destroy(features);
        if (status == TSR_OK && t + 1 < f->most)
            status = run_draft(f, ids, hidden, features);
        tsr_tensor_destroy(&hidden);
        tsr_tensor_destroy(&logits);
        tsr_tensor_destroy(&ids);
    }
    tsr_tensor_destroy(features);
    return status;
}

/* Takes the drafts, and after an error all places that a pass may not have computed, from the
 * cache. */
static void take_back(const finding *f)
{
    tsr__draft_next *d = f->g->drafts->next;
    for (int i = 0; i < f->rows; i++)
        truncate(d, &d->texts[f->some[i]->number]);
}

static tsr_status find(finding *f)
{
    tsr__draft_next *d = f->g->drafts->next;
    tsr_tensor *last = NULL;
    tsr_status status = run_known(f, &last);
    if (status == TSR_OK)
        status = run_chain(f, &last);
    if (status == TSR_OK && f->on_device)
        status = tsr_stream_wait(d->model->stream);
    if (status == TSR_OK && f->on_device)
        status = tsr__drafts_read_chosen(d->chosen, f->rows, f->some, f->most);
    for (int i = 0; i < f->rows && status == TSR_OK; i++)
        d->texts[f->some[i]->number].fed = d->texts[f->some[i]->number].end;
    take_back(f);
    return status;
}

/* Prepares a text, and adds it to those for which drafts are found, if they can be. */
static tsr_status add_text(finding *f, tsr__draft_text *text)
{
    tsr_generator *g = f->g;
    tsr__draft_next *d = g->drafts->next;
    known_text *t = &d->texts[text->number];
    const int64_t end = g->sequences[text->number].seen;
    tsr__drafts_begin_text(g, text);
    if (text->most <= 0 || end <= 0 || f->rows == TSR__DRAFT_SEQUENCES)
        return TSR_OK;
    forget(d, t, end, end);
    if (t->fed == end) /* its output is needed again */
        forget(d, t, end - 1, end);
    if (is_whole(t) && t->end == end && end - t->fed > MOST_NEW)
        TSR__TRY(feed_kept(g, text->number, end - t->fed - 1));
    const int64_t pages = pages_for(g, t, MOST_NEW + text->most);
    if (t->end != end || !is_whole(t) || t->fed == end || !has_pages(d, f->pages + pages))
        return TSR_OK;
    f->pages += pages;
    f->drawn = f->drawn || text->drawn;
    f->most = text->most < f->most ? text->most : f->most;
    f->cached[f->rows] = t->cache;
    f->some[f->rows++] = text;
    return TSR_OK;
}

tsr_status tsr__draft_next_find(tsr_generator *g, int count, tsr__draft_text *texts)
{
    tsr__draft_next *d = g->drafts->next;
    finding f = {.g = g, .most = TSR_MAX_DRAFT_TOKENS};
    const uint64_t start = tsr__now_ns();
    for (int i = 0; i < count; i++)
        TSR__TRY(add_text(&f, &texts[i]));
    f.on_device = d->chosen[0] && !f.drawn;
    tsr_status status = f.rows > 0 ? find(&f) : TSR_OK;
    if (status == TSR_ERR_UNSUPPORTED && f.on_device) {
        tsr__log(TSR_LOG_WARNING, "generator: the host chooses the drafts: %s", tsr_last_error());
        forget_chosen(d);
        f.on_device = false;
        status = find(&f);
    }
    g->drafts->find_ns = tsr__now_ns() - start;
    g->stats.draft_ns += g->drafts->find_ns;
    return status;
}

/* Before the first text ------------------------------------------------------------------------ */

tsr_status tsr__draft_next_warm_up(tsr_generator *g, int number)
{
    tsr__draft_next *d = g->drafts->next;
    const int64_t most = g->drafts->most + 1, width = d->model->config->width,
                  length = g->sequences[number].length;
    known_text *t = &d->texts[number];
    const int32_t ids[MOST_NEW] = {0};
    tsr__draft_text text = {.number = number, .length = length};
    const int wanted = most > 2 ? 2 : 1;
    finding f = {.g = g,
                 .rows = 1,
                 .most = tsr__drafts_most(g, number, length, wanted),
                 .some = {&text},
                 .cached = {t->cache},
                 .on_device = d->chosen[0] != NULL};
    tsr_status status = TSR_OK;
    for (int64_t tokens = 1; tokens <= MOST_NEW && tokens < 2 * most && status == TSR_OK;
         tokens *= 2) {
        tsr_tensor *x = NULL, *last = NULL;
        if (f.most == 0 || !has_pages(d, pages_for(g, t, tokens + 1)))
            break;
        text.count = 0;
        status = tsr_tensor_create(d->model->device, TSR_F32, 3, (int64_t[]){1, tokens, width}, &x);
        if (status == TSR_OK)
            status = tsr_fill(d->model->stream, x, 0);
        if (status == TSR_OK)
            status = run_first(&f, tokens, &tokens, ids, x, &last);
        if (status == TSR_OK)
            status = run_chain(&f, &last);
        tsr_tensor_destroy(&x);
        truncate(d, t);
    }
    if (status == TSR_ERR_UNSUPPORTED && f.on_device) /* the first pass with drafts says so */
        return TSR_OK;
    return status == TSR_OK ? tsr_stream_wait(d->model->stream) : status;
}
