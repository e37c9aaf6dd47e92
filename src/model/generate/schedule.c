/* The schedule of generators whose params have `piece`: which tokens a step computes, and which
 * sequences have pages of the cache. All ranks get the same schedule, because it depends on the
 * calls only, which are the same on all ranks.
 *
 * A sequence is older than those that were added after it. The oldest sequences have pages, and
 * younger ones wait without any. A waiting sequence begins if it is the oldest of them, and there
 * are pages for all tokens that it has and one more. If a sequence with pages needs one more, and
 * there is none, the youngest sequence with pages loses all of its own. The oldest sequence
 * therefore always goes on, and no sequence is longer than the cache. */
#include <string.h>

#include "model/generate/generator.h"

static int64_t pages_for(const tsr_generator *g, int64_t tokens)
{
    return (tokens + g->page_tokens - 1) / g->page_tokens;
}

static bool goes_on(const tsr__sequence *s)
{
    return s->used && s->finish == TSR_FINISH_NONE;
}

static int64_t pages_of(const tsr_generator *g, const tsr__sequence *s)
{
    return pages_for(g, tsr_kv_cache_length(g->cache, s->cache));
}

/* Returns how many pages a sequence lacks to have this many tokens in the cache. */
static int64_t lacks(const tsr_generator *g, const tsr__sequence *s, int64_t tokens)
{
    const int64_t more = pages_for(g, tokens) - pages_of(g, s);
    return more > 0 ? more : 0;
}

/* Pages -------------------------------------------------------------------------------------- */

/* Takes all of a sequence's pages. Its tokens will be computed as a prompt. */
static void take_pages(tsr_generator *g, tsr__sequence *s)
{
    tsr__drafts_forget(g, (int)(s - g->sequences), 0);
    const tsr_status status = tsr_kv_cache_truncate(g->cache, s->cache, 0);
    if (status != TSR_OK) /* not reached: the sequence exists */
        tsr__log(TSR_LOG_ERROR, "generator: %s", tsr_last_error());
    if (s->length == s->prompt)
        s->cached = 0;
    s->seen = s->whole = 0;
    if (g->prefix)
        tsr__prefix_leave(g->prefix, s->block);
    s->block = TSR__PREFIX_NONE;
    s->in_prompt = true;
}

static tsr__sequence *find_ended(const tsr_generator *g)
{
    for (int i = 0; i < g->count; i++) {
        tsr__sequence *s = &g->sequences[i];
        if (s->used && !goes_on(s) && pages_of(g, s) > 0)
            return s;
    }
    return NULL;
}

static tsr__sequence *find_youngest(const tsr_generator *g)
{
    tsr__sequence *youngest = NULL;
    for (int i = 0; i < g->count; i++) {
        tsr__sequence *s = &g->sequences[i];
        if (goes_on(s) && pages_of(g, s) > 0 && (!youngest || s->age > youngest->age))
            youngest = s;
    }
    return youngest;
}

static tsr__sequence *find_oldest_waiting(const tsr_generator *g)
{
    tsr__sequence *oldest = NULL;
    for (int i = 0; i < g->count; i++) {
        tsr__sequence *s = &g->sequences[i];
        if (goes_on(s) && pages_of(g, s) == 0 && (!oldest || s->age < oldest->age))
            oldest = s;
    }
    return oldest;
}

/* Frees pages that no running sequence uses. Returns false if there are none. */
static bool free_unused(tsr_generator *g)
{
    if (tsr__drafts_drop_all(g))
        return true;
    if (g->prefix && tsr__prefix_evict(g->prefix))
        return true;
    tsr__sequence *ended = find_ended(g);
    if (!ended)
        return false;
    take_pages(g, ended);
    return true;
}

/* Takes the pages of the youngest sequence that has some. */
static void preempt(tsr_generator *g, tsr__sequence *youngest)
{
    tsr__flight_discard(g);
    take_pages(g, youngest);
    g->stats.preemptions++;
}

/* Tokens ------------------------------------------------------------------------------------- */

/* Lists the sequences that only need their next token. Returns how many pages they lack for it. */
static int64_t list_tokens(const tsr_generator *g, int *count, int *numbers)
{
    int64_t lacking = 0;
    *count = 0;
    for (int i = 0; i < g->count; i++) {
        const tsr__sequence *s = &g->sequences[i];
        if (!goes_on(s) || s->in_prompt)
            continue;
        numbers[(*count)++] = i;
        lacking += lacks(g, s, s->seen + 1);
    }
    return lacking;
}

void tsr__schedule_tokens(tsr_generator *g, int *count, int *numbers)
{
    /* One sequence alone has room in the cache, and one without pages is not listed. */
    while (list_tokens(g, count, numbers) > tsr_kv_cache_free_pages(g->cache))
        if (!free_unused(g))
            preempt(g, find_youngest(g));
}

/* Prompts ------------------------------------------------------------------------------------ */

bool tsr__schedule_has_prompts(const tsr_generator *g)
{
    for (int i = 0; i < g->count; i++)
        if (goes_on(&g->sequences[i]) && g->sequences[i].in_prompt)
            return true;
    return false;
}

/* Returns how many pages there are at most if all drafts, ended sequences and kept pieces of
 * prompts leave. Pages that several of these share may count more than once. */
static int64_t most_pages(const tsr_generator *g)
{
    int64_t pages = tsr_kv_cache_free_pages(g->cache) +
                    (g->prefix ? tsr__prefix_evictable_pages(g->prefix) : 0);
    for (int i = 0; i < g->count; i++) {
        const tsr__sequence *s = &g->sequences[i];
        if (s->used)
            pages += pages_of(g, s) - (goes_on(s) ? pages_for(g, s->seen) : 0);
    }
    return pages;
}

/* True if a waiting sequence may begin. Takes pages of drafts and of ended sequences for it, unless
 * these are too few. */
static bool may_begin(tsr_generator *g, const tsr__sequence *s)
{
    const int64_t needed = pages_for(g, s->length < g->longest ? s->length + 1 : s->length);
    if (find_oldest_waiting(g) != s || most_pages(g) < needed)
        return false;
    for (;;) {
        int64_t available = tsr_kv_cache_free_pages(g->cache);
        available += g->prefix ? tsr__prefix_evictable_pages(g->prefix) : 0;
        if (available >= needed)
            return true;
        if (tsr__drafts_drop_all(g))
            continue;
        tsr__sequence *ended = find_ended(g);
        if (!ended)
            return false;
        take_pages(g, ended);
    }
}

/* Makes room for the first `end` tokens of a sequence. Returns false if it must wait for older
 * ones, whose drafts then stay. */
static bool make_room(tsr_generator *g, const tsr__sequence *s, int64_t end)
{
    while (lacks(g, s, end) > tsr_kv_cache_free_pages(g->cache)) {
        tsr__sequence *youngest = find_youngest(g);
        const bool preempts = youngest && youngest->age > s->age;
        if (!preempts && most_pages(g) < lacks(g, s, end))
            return false;
        if (free_unused(g))
            continue;
        if (!preempts)
            return false;
        preempt(g, youngest);
    }
    return true;
}

/* Returns how many of the next pieces of a prompt are in the prefix cache, up to one after which
 * the sequence can go on. The last token is always computed, for its logits, and so is the piece
 * with it. */
static int64_t count_blocks(const tsr_generator *g, const tsr__sequence *s)
{
    const int64_t piece = g->params.piece;
    int64_t count = 0, usable = 0;
    int block = s->block;
    if (!g->prefix || s->whole != s->seen)
        return 0;
    for (int64_t seen = s->seen; seen + piece < s->length; seen += piece) {
        block = tsr__prefix_find(g->prefix, tsr__generator_chain(g, s), block, s->tokens + seen);
        if (block == TSR__PREFIX_NONE)
            break;
        count++;
        usable = tsr__prefix_resumable(g->prefix, block) ? count : usable;
    }
    return usable;
}

/* Gives a sequence the next pieces of its prompt that are in the prefix cache. */
static tsr_status use_blocks(tsr_generator *g, tsr__sequence *s)
{
    const int64_t piece = g->params.piece;
    for (int64_t left = count_blocks(g, s); left > 0; left--) {
        const int block =
            tsr__prefix_find(g->prefix, tsr__generator_chain(g, s), s->block, s->tokens + s->seen);
        TSR__TRY(tsr__prefix_use(g->prefix, block, s->cache, left == 1));
        s->block = block;
        s->seen = s->whole = s->seen + piece;
        g->stats.cached_tokens += (uint64_t)piece;
        if (s->length == s->prompt)
            s->cached += piece;
    }
    return TSR_OK;
}

/* Keeps the piece of a prompt that has been computed from token `first` on. */
static void keep_block(tsr_generator *g, tsr__sequence *s, int64_t first)
{
    if (!g->prefix || s->whole != first || s->seen != first + g->params.piece)
        return;
    const int block = tsr__prefix_add(g->prefix, tsr__generator_chain(g, s), s->block,
                                      s->tokens + first, s->cache);
    if (block == TSR__PREFIX_NONE)
        return;
    s->block = block;
    s->whole = s->seen;
}

/* Computes the next piece of a prompt, if it has at most *budget tokens and there are pages for it.
 * *waits is set if only the budget is too small. */
static tsr_status compute_piece(tsr_generator *g, int number, tsr__piece_fn compute,
                                int64_t *budget, bool *waits)
{
    tsr__sequence *s = &g->sequences[number];
    const int64_t piece = g->params.piece;
    if (pages_of(g, s) == 0 && !may_begin(g, s))
        return TSR_OK;
    TSR__TRY(use_blocks(g, s));
    const int64_t first = s->seen, next = (first / piece + 1) * piece;
    const int64_t end = next < s->length ? next : s->length;
    *waits = end - first > *budget;
    if (*waits || !make_room(g, s, end))
        return TSR_OK;
    TSR__TRY(compute(g, number, end));
    *budget -= end - first;
    s->in_prompt = end < s->length;
    keep_block(g, s, first);
    return TSR_OK;
}

tsr_status tsr__schedule_prompts(tsr_generator *g, tsr__piece_fn compute)
{
    int64_t budget = g->params.piece;
    const int from = g->first_prompt < g->count ? g->first_prompt : 0;
    bool waits = false;
    for (int i = 0; i < g->count && !waits; i++) {
        const int number = (from + i) % g->count;
        const tsr__sequence *s = &g->sequences[number];
        if (!goes_on(s) || !s->in_prompt)
            continue;
        TSR__TRY(compute_piece(g, number, compute, &budget, &waits));
        /* The next step begins with the prompt after this one, or with this one if it had to wait
         * for its turn. */
        g->first_prompt = waits ? number : (number + 1) % g->count;
    }
    const uint64_t computed = (uint64_t)(g->params.piece - budget);
    if (computed > g->stats.most_step_tokens)
        g->stats.most_step_tokens = computed;
    return TSR_OK;
}

void tsr__schedule_count(const tsr_generator *g, tsr_generator_stats *stats)
{
    for (int i = 0; i < g->count; i++) {
        const tsr__sequence *s = &g->sequences[i];
        stats->running += goes_on(s);
        stats->waiting += goes_on(s) && pages_of(g, s) == 0;
    }
    stats->pages = g->pages;
    stats->free_pages = tsr_kv_cache_free_pages(g->cache);
    stats->prefix_pages = g->prefix ? tsr__prefix_pages(g->prefix) : 0;
}
