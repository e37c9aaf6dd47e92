/* Speculation: a pass computes, after a sequence's last token, tokens that are likely to follow
 * (its drafts), so that one pass, and one set of collectives, may serve several steps. Each step
 * chooses its token as without drafts, by the same draws, from logits that were computed for these
 * very tokens. If a token is not the draft that follows, the rest of the drafts is taken from the
 * cache.
 *
 * Drafts are looked up: if the last tokens of a text occurred in it before, what followed them
 * then. Or a smaller model finds them (draft_model.c), or the model's own layer that predicts
 * further tokens (draft_next.c). How many are computed, and whether any are,
 * is decided in draft_pace.c; draft_ahead.c chooses the tokens of later steps at once, so that the
 * ranks need not exchange them one by one. */
#include <string.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/error.h"
#include "model/generate/draft.h"
#include "model/model.h"

#define LONGEST_MATCH 4 /* the tokens that must have occurred before: at most, and at least */
#define LEAST_MATCH 2
/* Without drafts, ranks agree on their length only after so many steps. */
#define QUIET_STEPS 15

void tsr__drafts_destroy(tsr__drafts **drafts)
{
    tsr__drafts *d = *drafts;
    if (!d)
        return;
    tsr__draft_model_destroy(&d->model);
    tsr__draft_next_destroy(&d->next);
    tsr__free(d->probabilities);
    tsr__free(d->logits);
    tsr__free(d->pass);
    tsr__free(d->ids);
    tsr__free(d->numbers);
    tsr__free(d->of);
    tsr__free(d);
    *drafts = NULL;
}

tsr_status tsr__drafts_create(tsr_generator *g)
{
    const tsr_generator_params *p = &g->params;
    if (p->draft == TSR_DRAFT_NONE)
        return TSR_OK;
    tsr__drafts *d = tsr__calloc(1, sizeof *d);
    if (!d)
        return TSR_ERR_NO_MEMORY;
    const size_t sequences = (size_t)p->sequences, each = (size_t)p->draft_tokens + 1,
                 some =
                     (sequences < TSR__DRAFT_SEQUENCES ? sequences : TSR__DRAFT_SEQUENCES) * each,
                 rows = some > sequences ? some : sequences,
                 vocabulary = (size_t)g->model->config->vocabulary;
    g->drafts = d;
    d->most = d->length = p->draft_tokens;
    d->sent = p->draft == TSR_DRAFT_MODEL &&
              (!p->draft_model || tsr_group_size(p->draft_model->group) == 1);
    tsr__drafts_begin_trials(d);
    d->logits = tsr__calloc(sequences * each, vocabulary * sizeof *d->logits);
    d->pass = tsr__calloc(rows, vocabulary * sizeof *d->pass);
    d->ids = tsr__calloc(rows, sizeof *d->ids);
    d->numbers = tsr__calloc(rows, sizeof *d->numbers);
    d->of = tsr__calloc(sequences, sizeof *d->of);
    if (!d->logits || !d->pass || !d->ids || !d->numbers || !d->of)
        return TSR_ERR_NO_MEMORY;
    const bool own = p->draft == TSR_DRAFT_MTP;
    if (p->rejection_sampling && (own || p->draft_model)) {
        d->probabilities =
            tsr__calloc(sequences * (each - 1), vocabulary * sizeof *d->probabilities);
        if (!d->probabilities)
            return TSR_ERR_NO_MEMORY;
    }
    if (own)
        return g->model->is_last ? tsr__draft_next_create(g, &d->next) : TSR_OK;
    return tsr__draft_model_create(g, &d->model);
}

float *tsr__drafts_row(const tsr_generator *g, int number, int row)
{
    const size_t vocabulary = (size_t)g->model->config->vocabulary;
    return g->drafts->logits +
           ((size_t)number * (size_t)(g->drafts->most + 1) + (size_t)row) * vocabulary;
}

void tsr__drafts_drop(tsr_generator *g, int number)
{
    if (!g->drafts || g->drafts->of[number].next == 0)
        return;
    const tsr__sequence *s = &g->sequences[number];
    g->drafts->of[number].next = g->drafts->of[number].ready = 0;
    tsr__generator_take_back(g, number, s->seen);
}

bool tsr__drafts_drop_all(tsr_generator *g)
{
    bool any = false;
    for (int i = 0; g->drafts && i < g->count; i++) {
        any = any || g->drafts->of[i].next > 0;
        tsr__drafts_drop(g, i);
    }
    return any;
}

void tsr__drafts_forget(tsr_generator *g, int number, int64_t length)
{
    if (!g->drafts)
        return;
    tsr__drafts_drop(g, number);
    g->drafts->of[number].planned_at = g->drafts->of[number].given_at = 0;
    tsr__draft_model_cut(g, number, length);
    tsr__draft_next_cut(g, number, length);
}

bool tsr__drafts_take(tsr_generator *g, int number, float *logits)
{
    tsr__drafts *d = g->drafts;
    tsr__drafted *own = &d->of[number];
    tsr__sequence *s = &g->sequences[number];
    if (own->next == 0)
        return false;
    const bool found = own->next <= own->found,
               right = found && s->tokens[s->length - 1] == own->ids[own->next - 1];
    if (found)
        tsr__drafts_note_draft(d, right);
    if (!right) {
        tsr__drafts_drop(g, number);
        return false;
    }
    memcpy(logits, tsr__drafts_row(g, number, own->next),
           (size_t)g->model->config->vocabulary * sizeof *logits);
    if (own->next <= own->ready) {
        g->chosen[number] = own->tokens[own->next - 1];
        own->given_at = s->length;
    }
    s->seen++;
    g->stats.accepted_tokens++;
    own->next = own->next < own->count ? own->next + 1 : 0;
    return true;
}

/* Looking up --------------------------------------------------------------------------------- */

/* Finds what followed the last tokens of a text when they occurred before: the longest match, and
 * of these the latest one. Returns the number of drafts, at most `most`. */
static int look_up(const int32_t *tokens, int64_t count, int most, int32_t *drafts)
{
    int64_t longest = LEAST_MATCH - 1, from = 0;
    for (int64_t end = count - 1; end >= LEAST_MATCH && longest < LONGEST_MATCH; end--) {
        int64_t same = 0;
        while (same < LONGEST_MATCH && same < end &&
               tokens[end - 1 - same] == tokens[count - 1 - same])
            same++;
        if (same > longest) {
            longest = same;
            from = end;
        }
    }
    if (longest < LEAST_MATCH)
        return 0;
    const int64_t there = count - from;
    const int found = there < most ? (int)there : most;
    memcpy(drafts, tokens + from, (size_t)found * sizeof *drafts);
    return found;
}

static int64_t pages_for(const tsr_generator *g, int64_t tokens)
{
    return (tokens + g->page_tokens - 1) / g->page_tokens;
}

void tsr__drafts_plan(tsr_generator *g, const tsr__draft_text *text)
{
    tsr__drafted *own = &g->drafts->of[text->number];
    own->planned = text->count;
    own->planned_at = text->length;
    own->plan_drawn = text->drawn;
    memcpy(own->plan, text->ids, (size_t)text->count * sizeof *own->plan);
}

/* Gives the drafts that the last stage has found to all stages, or the news that it could not find
 * them. */
static tsr_status share_drafts(const tsr_generator *g, int count, tsr__draft_text *texts,
                               tsr_status own)
{
    int32_t words[TSR__DRAFT_SEQUENCES][1 + TSR_MAX_DRAFT_TOKENS];
    if (!g->model->stages)
        return own;
    for (int i = 0; i < count; i++) {
        words[i][0] = own == TSR_OK ? texts[i].count : -1;
        memcpy(words[i] + 1, texts[i].ids, sizeof texts[i].ids);
    }
    const tsr__error error = tsr__error_take();
    const tsr_status status = tsr__model_from_last(
        g->model, words, (uint64_t)count * (sizeof *words / sizeof **words), TSR_I32);
    if (own != TSR_OK) {
        tsr__error_put_back(&error);
        return own;
    }
    TSR__TRY(status);
    for (int i = 0; i < count; i++) {
        texts[i].count = words[i][0];
        memcpy(texts[i].ids, words[i] + 1, sizeof texts[i].ids);
        TSR__REQUIRE(texts[i].count >= 0, "generator: the last stage could not find drafts");
    }
    return TSR_OK;
}

/* All ranks of a divided draft_model, or of the last stage of a model whose own layer predicts
 * tokens, find drafts together, before the pass that computes them. */
static tsr_status plan_together(tsr_generator *g, int count, const int *numbers)
{
    tsr__draft_text texts[TSR__DRAFT_SEQUENCES];
    const bool own = g->params.draft == TSR_DRAFT_MTP;
    if ((!own && (!g->drafts->model || g->drafts->sent)) || count > TSR__DRAFT_SEQUENCES)
        return TSR_OK;
    for (int i = 0; i < count; i++) {
        const int64_t length = g->sequences[numbers[i]].length;
        texts[i] =
            (tsr__draft_text){.number = numbers[i],
                              .length = length,
                              .most = tsr__drafts_most(g, numbers[i], length, g->drafts->length)};
    }
    if (own)
        TSR__TRY(share_drafts(g, count, texts,
                              g->drafts->next ? tsr__draft_next_find(g, count, texts) : TSR_OK));
    else
        TSR__TRY(tsr__draft_model_find(g, count, texts));
    for (int i = 0; i < count; i++)
        tsr__drafts_plan(g, &texts[i]);
    return TSR_OK;
}

/* Sets the drafts of a sequence for the next pass, which can have `most`. */
static void set_drafts(tsr_generator *g, int number, int most)
{
    tsr__drafts *d = g->drafts;
    const tsr__sequence *s = &g->sequences[number];
    tsr__drafted *own = &d->of[number];
    own->found = own->ready = 0;
    own->drawn = false;
    if (g->params.draft == TSR_DRAFT_NGRAM) {
        own->found = most > 0 ? look_up(s->tokens, s->length, most, own->ids) : 0;
    } else if (own->planned_at == s->length) {
        own->found = own->planned < most ? own->planned : most;
        own->drawn = own->plan_drawn;
        memcpy(own->ids, own->plan, (size_t)own->found * sizeof *own->ids);
    }
    own->planned_at = 0;
    const int filled = tsr__drafts_rounded(d, own->found);
    own->count = filled <= most ? filled : own->found;
    for (int t = own->found; t < own->count; t++)
        own->ids[t] = own->ids[own->found - 1];
}

tsr_status tsr__drafts_propose(tsr_generator *g, int count, const int *numbers, int64_t *tokens,
                               int *out)
{
    tsr__drafts *d = g->drafts;
    int64_t pages = 0, least = 0; /* that the pass needs, with and without drafts */
    int longest = 0;
    TSR__TRY(plan_together(g, count, numbers));
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        const tsr__drafted *own = &d->of[numbers[i]];
        set_drafts(g, numbers[i],
                   count <= TSR__DRAFT_SEQUENCES
                       ? tsr__drafts_most(g, numbers[i], s->length, d->length)
                       : 0);
        const int64_t held = pages_for(g, tsr_kv_cache_length(g->cache, s->cache));
        pages += pages_for(g, s->seen + 1 + own->count) - held;
        least += pages_for(g, s->seen + 1) - held;
        longest = own->count > longest ? own->count : longest;
    }
    if (least > tsr_kv_cache_free_pages(g->cache))
        (void)tsr__drafts_drop_all(g); /* those of other sequences */
    if (pages > tsr_kv_cache_free_pages(g->cache))
        longest = 0;
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        tsr__drafted *own = &d->of[numbers[i]];
        own->count = longest == 0 ? 0 : own->count;
        own->found = longest == 0 ? 0 : own->found;
        int32_t *ids = d->ids + (size_t)i * (size_t)(longest + 1);
        memset(ids, 0, (size_t)(longest + 1) * sizeof *ids);
        ids[0] = s->tokens[s->seen];
        memcpy(ids + 1, own->ids, (size_t)own->count * sizeof *ids);
        tokens[i] = 1 + own->count;
        g->stats.drafted_tokens += (uint64_t)own->found;
        for (int t = 0; t <= longest; t++)
            d->numbers[i * (longest + 1) + t] = numbers[i];
    }
    g->stats.drafted_passes += longest > 0;
    g->stats.plain_passes += longest == 0;
    *out = longest;
    return TSR_OK;
}

int tsr__drafts_warm_up(tsr_generator *g, int number, int after)
{
    tsr__drafts *d = g->drafts;
    const int64_t seen = g->sequences[number].seen;
    const int count = tsr__drafts_rounded(d, after + 1);
    if (count <= after || seen + count >= g->longest ||
        pages_for(g, seen + count + 1) - pages_for(g, seen) > tsr_kv_cache_free_pages(g->cache))
        return 0;
    memset(d->ids, 0, (size_t)(count + 1) * sizeof *d->ids);
    for (int i = 0; i <= count; i++)
        d->numbers[i] = number;
    return count;
}

tsr_status tsr__drafts_warm_up_model(tsr_generator *g, int number)
{
    /* With two tokens, finding drafts needs all of its kernels. */
    tsr__draft_text text = {.number = number, .length = g->sequences[number].length > 1 ? 2 : 1};
    if (g->drafts->next)
        return tsr__draft_next_warm_up(g, number);
    if (!g->drafts->model)
        return TSR_OK;
    text.most = tsr__drafts_most(g, number, text.length, g->drafts->most);
    return tsr__draft_model_warm_up(g, &text);
}

const int32_t *tsr__drafts_ids(const tsr_generator *g)
{
    return g->drafts->ids;
}

const int *tsr__drafts_numbers(const tsr_generator *g)
{
    return g->drafts->numbers;
}

float *tsr__drafts_logits(const tsr_generator *g)
{
    return g->drafts->pass;
}

void tsr__drafts_keep(tsr_generator *g, int count, const int *numbers, int longest, uint64_t ns)
{
    tsr__drafts *d = g->drafts;
    const size_t vocabulary = (size_t)g->model->config->vocabulary;
    tsr__drafts_note_cost(d, count, longest, ns);
    for (int i = 0; i < count; i++) {
        tsr__drafted *own = &d->of[numbers[i]];
        memcpy(tsr__drafts_row(g, numbers[i], 0),
               d->pass + (size_t)(i * (longest + 1)) * vocabulary,
               (size_t)(own->count + 1) * vocabulary * sizeof *d->logits);
        own->next = own->count > 0 ? 1 : 0;
    }
}

const float *tsr__drafts_first(const tsr_generator *g, int number)
{
    return tsr__drafts_row(g, number, 0);
}

void tsr__drafts_set(tsr_generator *g, int32_t length)
{
    if (!g->drafts)
        return;
    g->drafts->length = length;
    g->drafts->quiet = 0;
}

bool tsr__drafts_are_quiet(tsr_generator *g)
{
    if (!g->drafts)
        return true;
    /* A step that builds kernels needs all logits, because it computes others meanwhile. */
    bool quiet = g->warm && g->drafts->length == 0 && g->drafts->quiet++ < QUIET_STEPS;
    for (int i = 0; quiet && i < g->count; i++)
        quiet = g->drafts->of[i].next == 0;
    return quiet;
}

bool tsr__drafts_are_on(const tsr_generator *g, int count, const int *numbers)
{
    if (!g->drafts)
        return false;
    bool on = g->warm && g->drafts->length > 0;
    for (int i = 0; i < count; i++)
        on = on || g->drafts->of[numbers[i]].next > 0;
    return on;
}
