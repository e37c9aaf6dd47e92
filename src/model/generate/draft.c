/* Speculation: a pass computes, after a sequence's last token, tokens that are likely to follow
 * (its drafts), so that one pass, and one set of collectives, may serve several steps. Each step
 * chooses its token as without drafts, by the same draws, from logits that were computed for these
 * very tokens. If a token is not the draft that follows, the rest of the drafts is taken from the
 * cache.
 *
 * Drafts are looked up: if the last tokens of a text occurred in it before, what followed them
 * then. How many are computed depends on how often drafts were right, and on how long passes took.
 * Whether any are computed depends on a comparison that goes on all the time: steps without drafts
 * may be faster, also because the host need not wait for them (flight.c). Rank 0 decides both. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "model/generate/generator.h"
#include "model/model.h"

#define MOST_SEQUENCES 8 /* with more, a pass has rows enough */
#define LONGEST_MATCH 4  /* the tokens that must have occurred before: at most, and at least */
#define LEAST_MATCH 2
/* The steps for which the worse of the two ways, with drafts and without, is tried, and those
 * between trials: twice as many each time that the better way stays the better one. */
#define TRIAL 32
#define FIRST_TRIAL 8 /* builds kernels; its time does not count */
#define LEAST_STAY 512
#define MOST_STAY 8192
/* A trial that takes so many times as long as the other way ends after so many steps. */
#define GIVES_UP_AT 2.0
#define GIVES_UP_AFTER 8
/* The weight of the latest observation in means. */
#define OF_RATE (1.0 / 16)
#define OF_COST (1.0 / 4)

typedef struct drafted {
    int count; /* drafts in the cache behind the sequence's last token */
    int found; /* those of them that were looked up; the others fill the pass */
    int next;  /* the row of `logits` that the next step uses, 1 … count; 0: there is none */
    int32_t ids[TSR_MAX_DRAFT_TOKENS];
} drafted;

/* The comparison of steps with drafts, 1, and without, 0. */
typedef struct trial {
    int way;
    int first;      /* trials that are not over whose time does not count */
    bool tries;     /* the way is tried; otherwise it is the better one */
    int64_t steps;  /* of this way in a row */
    int64_t most;   /* steps after which the other way has its turn */
    int64_t stay;   /* steps between trials */
    double ns;      /* the time of these steps */
    double tokens;  /* that they gave */
    double cost[2]; /* ns of a token; 0: unknown */
} trial;

struct tsr__drafts {
    int most;   /* the most drafts of a sequence */
    int length; /* how many a pass computes at present; 0: passes are as without drafts */
    trial trial;
    float *logits; /* [sequences, most + 1, vocabulary]: of tokens in the cache */
    /* [rows]: of a pass, which has a row for each sequence, and one for each of its drafts */
    float *pass; /* [rows, vocabulary] */
    int32_t *ids;
    int *numbers;
    drafted *of;                           /* [sequences] */
    double rate;                           /* how often a draft is right if those before it were */
    int rows;                              /* sequences of the passes that `cost` is about */
    double cost[TSR_MAX_DRAFT_TOKENS + 1]; /* ns of a pass by its number of drafts; 0: unknown */
};

void tsr__drafts_destroy(tsr__drafts **drafts)
{
    tsr__drafts *d = *drafts;
    if (!d)
        return;
    tsr__free(d->logits);
    tsr__free(d->pass);
    tsr__free(d->ids);
    tsr__free(d->numbers);
    tsr__free(d->of);
    tsr__free(d);
    *drafts = NULL;
}

tsr_status tsr__drafts_create(const tsr_generator *g, tsr__drafts **out)
{
    const tsr_generator_params *p = &g->params;
    if (p->draft == TSR_DRAFT_NONE)
        return TSR_OK;
    tsr__drafts *d = tsr__calloc(1, sizeof *d);
    if (!d)
        return TSR_ERR_NO_MEMORY;
    const size_t sequences = (size_t)p->sequences, each = (size_t)p->draft_tokens + 1,
                 some = (sequences < MOST_SEQUENCES ? sequences : MOST_SEQUENCES) * each,
                 rows = some > sequences ? some : sequences,
                 vocabulary = (size_t)g->model->config->vocabulary;
    d->most = d->length = p->draft_tokens;
    d->rate = 0.5;
    d->trial =
        (trial){.way = 1, .first = 2, .tries = true, .most = FIRST_TRIAL, .stay = LEAST_STAY};
    d->logits = tsr__calloc(sequences * each, vocabulary * sizeof *d->logits);
    d->pass = tsr__calloc(rows, vocabulary * sizeof *d->pass);
    d->ids = tsr__calloc(rows, sizeof *d->ids);
    d->numbers = tsr__calloc(rows, sizeof *d->numbers);
    d->of = tsr__calloc(sequences, sizeof *d->of);
    if (!d->logits || !d->pass || !d->ids || !d->numbers || !d->of) {
        tsr__drafts_destroy(&d);
        return TSR_ERR_NO_MEMORY;
    }
    *out = d;
    return TSR_OK;
}

static float *row_of(const tsr_generator *g, int number, int row)
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
    g->drafts->of[number].next = 0;
    if (tsr_kv_cache_truncate(g->cache, s->cache, s->seen) != TSR_OK) /* not reached */
        tsr__log(TSR_LOG_ERROR, "generator: %s", tsr_last_error());
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

bool tsr__drafts_take(tsr_generator *g, int number, float *logits)
{
    tsr__drafts *d = g->drafts;
    drafted *own = &d->of[number];
    tsr__sequence *s = &g->sequences[number];
    if (own->next == 0)
        return false;
    const bool found = own->next <= own->found,
               right = found && s->tokens[s->length - 1] == own->ids[own->next - 1];
    if (found)
        d->rate += OF_RATE * ((right ? 1 : 0) - d->rate);
    if (!right) {
        tsr__drafts_drop(g, number);
        return false;
    }
    memcpy(logits, row_of(g, number, own->next),
           (size_t)g->model->config->vocabulary * sizeof *logits);
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

/* Rounds a number of drafts up to one less than a power of two, or to the most that there are, so
 * that kernels are built for few numbers of rows. */
static int rounded(const tsr__drafts *d, int drafts)
{
    int more = 1;
    while (more < drafts)
        more = 2 * more + 1;
    return drafts == 0 ? 0 : more < d->most ? more : d->most;
}

static int64_t pages_for(const tsr_generator *g, int64_t tokens)
{
    return (tokens + g->page_tokens - 1) / g->page_tokens;
}

/* Returns how many drafts a sequence can have. */
static int most_for(const tsr_generator *g, const tsr__sequence *s)
{
    int64_t most = g->drafts->length;
    const int64_t of_text = s->limit - s->length - 1, of_cache = g->longest - s->seen - 1;
    most = of_text < most ? of_text : most;
    most = of_cache < most ? of_cache : most;
    return most > 0 ? (int)most : 0;
}

int tsr__drafts_propose(tsr_generator *g, int count, const int *numbers, int64_t *tokens)
{
    tsr__drafts *d = g->drafts;
    int64_t pages = 0, least = 0; /* that the pass needs, with and without drafts */
    int longest = 0;
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        drafted *own = &d->of[numbers[i]];
        const int most = count <= MOST_SEQUENCES ? most_for(g, s) : 0;
        own->found = most > 0 ? look_up(s->tokens, s->length, most, own->ids) : 0;
        own->count = rounded(d, own->found) <= most ? rounded(d, own->found) : own->found;
        for (int t = own->found; t < own->count; t++)
            own->ids[t] = own->ids[own->found - 1];
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
        drafted *own = &d->of[numbers[i]];
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
    return longest;
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

/* How many drafts ------------------------------------------------------------------------------ */

/* The first pass with a number of rows may build kernels, so a smaller value counts at once. */
static void note_cost(tsr__drafts *d, int rows, int drafts, uint64_t ns)
{
    if (rows != d->rows) {
        memset(d->cost, 0, sizeof d->cost);
        d->rows = rows;
    }
    const bool first = d->cost[drafts] == 0 || (double)ns < d->cost[drafts];
    d->cost[drafts] += (first ? 1 : OF_COST) * ((double)ns - d->cost[drafts]);
}

/* Returns the cost of a pass with so many drafts: an unknown one is as that of the next smaller
 * number that is known. */
static double cost_of(const tsr__drafts *d, int drafts)
{
    while (drafts > 0 && d->cost[drafts] == 0)
        drafts--;
    return d->cost[drafts];
}

/* Returns the number of drafts with the most tokens per time. */
static int best_length(const tsr__drafts *d)
{
    double tokens = 1 + d->rate, chance = d->rate, best = 0;
    int length = 1;
    if (d->cost[0] == 0)
        return d->most;
    for (int k = 1; k <= d->most; k++) {
        const double speed = tokens / cost_of(d, k);
        if (rounded(d, k) == k && speed > best) {
            best = speed;
            length = k;
        }
        chance *= d->rate;
        tokens += chance;
    }
    return length;
}

void tsr__drafts_keep(tsr_generator *g, int count, const int *numbers, int longest, uint64_t ns)
{
    tsr__drafts *d = g->drafts;
    const size_t vocabulary = (size_t)g->model->config->vocabulary;
    note_cost(d, count, longest, ns);
    for (int i = 0; i < count; i++) {
        drafted *own = &d->of[numbers[i]];
        memcpy(row_of(g, numbers[i], 0), d->pass + (size_t)(i * (longest + 1)) * vocabulary,
               (size_t)(own->count + 1) * vocabulary * sizeof *d->logits);
        own->next = own->count > 0 ? 1 : 0;
    }
}

const float *tsr__drafts_first(const tsr_generator *g, int number)
{
    return row_of(g, number, 0);
}

/* With drafts or without ---------------------------------------------------------------------- */

void tsr__drafts_measure(tsr_generator *g, int tokens, uint64_t ns)
{
    trial *t = &g->drafts->trial;
    t->steps++;
    t->tokens += tokens;
    t->ns += (double)ns;
}

/* Goes over to a way of making steps. */
static void begin(trial *t, int way, bool tries)
{
    *t = (trial){.way = way,
                 .first = t->first > 0 ? t->first - 1 : 0,
                 .tries = tries,
                 .most = t->first > 1 ? FIRST_TRIAL
                         : tries      ? TRIAL
                                      : t->stay,
                 .stay = t->stay,
                 .cost = {t->cost[0], t->cost[1]}};
}

/* Ends a number of steps that were made in one way, and chooses the next one. */
static void compare(trial *t)
{
    const int other = !t->way;
    if (t->first == 0)
        t->cost[t->way] = t->ns / t->tokens;
    if (!t->tries || t->cost[other] == 0) {
        begin(t, other, true);
        return;
    }
    const bool better = t->cost[t->way] < t->cost[other];
    t->stay = better ? LEAST_STAY : t->stay < MOST_STAY ? 2 * t->stay : MOST_STAY;
    begin(t, better ? t->way : other, false);
}

int32_t tsr__drafts_wish(const tsr_generator *g)
{
    tsr__drafts *d = g->drafts;
    if (!d)
        return 0;
    trial *t = &d->trial;
    const bool hopeless = t->tries && t->steps >= GIVES_UP_AFTER && t->cost[!t->way] > 0 &&
                          t->ns / t->tokens > GIVES_UP_AT * t->cost[!t->way];
    if (t->steps >= t->most || hopeless)
        compare(t);
    return t->way ? best_length(d) : 0;
}

void tsr__drafts_set(tsr_generator *g, int32_t length)
{
    if (g->drafts)
        g->drafts->length = length;
}

bool tsr__drafts_are_on(const tsr_generator *g, int count, const int *numbers)
{
    if (!g->drafts)
        return false;
    bool on = g->drafts->length > 0;
    for (int i = 0; i < count; i++)
        on = on || g->drafts->of[numbers[i]].next > 0;
    return on;
}
