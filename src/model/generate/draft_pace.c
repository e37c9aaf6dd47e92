/* How many drafts passes have, which depends on how often drafts were right, and on how long passes
 * took; and whether they have any, which depends on a comparison that goes on all the time: steps
 * without drafts may be faster, also because the host need not wait for them (flight.c). Rank 0
 * decides both.
 *
 * The first text begins with FIRST_TRIAL steps with drafts and FIRST_PLAIN without. From then on
 * the faster way is used, and the other one is tried from time to time. The time that trials lose
 * is measured, and the next one begins when all of the same way, with what it will probably lose,
 * are at most MOST_LOSS of the time of all steps. */
#include <string.h>

#include "gpu/internal.h"
#include "model/generate/draft.h"
#include "model/model.h"

#define FIRST_TRIAL 6
#define FIRST_PLAIN 8
/* The steps for which the slower way is tried, and the least between trials: fewer with drafts,
 * because steps with useless ones lose more than trials of the other way. */
#define TRIAL 32
#define LEAST_STAY 512
#define LEAST_STAY_WITH 64
/* Drafts are used if their tokens take at most so much of the time of others. */
#define WORTH_IT 0.97
#define MOST_LOSS (1.0 / 64)
/* A trial that takes so many times as long as the other way ends after so many steps. */
#define GIVES_UP_AT 1.5
#define GIVES_UP_AFTER 6
/* One step of so many may not have had a processor. */
#define STEPS_FOR_ONE_LONG 6
/* The weight of the latest observation in means. */
#define OF_RATE (1.0 / 16)
#define OF_COST (1.0 / 4)
#define FIRST_RATE 0.5
/* A number of drafts is judged after so many passes, the first of which may build kernels, and
 * again after so many passes with other numbers. A pass counts as at most so many times the mean.
 */
#define PASSES_TO_JUDGE 2
#define PASSES_TO_AGE 64
#define MOST_COST 1.5

/* How many drafts ---------------------------------------------------------------------------- */

int tsr__drafts_rounded(const tsr__drafts *d, int count)
{
    int more = 1;
    while (more < count)
        more = 2 * more + 1;
    return count == 0 ? 0 : more < d->most ? more : d->most;
}

void tsr__drafts_note_draft(tsr__drafts *d, bool right)
{
    d->rate += OF_RATE * ((right ? 1 : 0) - d->rate);
}

/* The first pass with a number of rows may build kernels, so a smaller value counts at once. */
void tsr__drafts_note_cost(tsr__drafts *d, int rows, int count, uint64_t ns)
{
    if (rows != d->rows) {
        memset(d->cost, 0, sizeof d->cost);
        memset(d->passes, 0, sizeof d->passes);
        d->rows = rows;
    }
    const bool first = d->cost[count] == 0;
    double all = (double)(ns + (d->sent && count > 0 ? d->find_ns : 0));
    all = first || all < MOST_COST * d->cost[count] ? all : MOST_COST * d->cost[count];
    d->cost[count] += (first || all < d->cost[count] ? 1 : OF_COST) * (all - d->cost[count]);
    d->passes[count]++;
    d->latest[count] = ++d->all_passes;
}

/* Returns the cost of a pass with so many drafts: an unknown one is as that of the next smaller
 * number that is known. */
static double cost_of(const tsr__drafts *d, int count)
{
    while (count > 0 && d->cost[count] == 0)
        count--;
    return d->cost[count];
}

/* If finding drafts takes time, the cost of each number of drafts is measured. Returns a number of
 * which it is not known, or has been measured long ago, or 0. */
static int unknown_length(const tsr__drafts *d)
{
    for (int k = d->most; k >= 1; k--)
        if (tsr__drafts_rounded(d, k) == k &&
            (d->passes[k] < PASSES_TO_JUDGE || d->all_passes - d->latest[k] >= PASSES_TO_AGE))
            return k;
    return 0;
}

/* Returns the number of drafts with the most tokens per time. */
static int best_length(const tsr_generator *g)
{
    const tsr__drafts *d = g->drafts;
    const bool by_model = g->params.draft != TSR_DRAFT_NGRAM;
    double tokens = 1 + d->rate, chance = d->rate, best = 0;
    int length = by_model ? unknown_length(d) : 1;
    if (by_model && length > 0)
        return length;
    if (!by_model && d->cost[0] == 0)
        return d->most;
    for (int k = 1; k <= d->most; k++) {
        const double speed = tokens / cost_of(d, k);
        if (tsr__drafts_rounded(d, k) == k && speed > best) {
            best = speed;
            length = k;
        }
        chance *= d->rate;
        tokens += chance;
    }
    return length;
}

/* With drafts or without ---------------------------------------------------------------------- */

void tsr__drafts_begin_trials(tsr__drafts *d)
{
    d->rate = FIRST_RATE;
    d->trial = (tsr__draft_trial){.way = 1, .tries = true, .most = FIRST_TRIAL};
}

void tsr__drafts_note_warm_up(tsr_generator *g, uint64_t ns)
{
    g->drafts->trial.expected_building = (double)ns;
}

void tsr__drafts_measure(tsr_generator *g, int tokens, uint64_t ns)
{
    tsr__drafts *d = g->drafts;
    tsr__draft_trial *t = &d->trial;
    const uint64_t built = tsr__stream_get_counts(g->model->stream).pipelines;
    const double lag = (double)d->lag_ns, all = (double)ns;
    const bool behind = d->behind && t->way == 1;
    /* The step was computed before the way changed, or before there were drafts, or it took long
     * because it built kernels: only its loss counts. */
    const bool builds = built != d->built, counts = !t->begins && !behind && !builds;
    d->lag_ns = 0;
    d->built = built;
    d->behind = false;
    if (tokens == 0) /* only a prompt */
        return;
    t->begins = false;
    t->all_time += all;
    t->time += all;
    t->all_tokens += tokens;
    t->lag_ns += lag;
    t->steps += !behind;
    t->building_ns += builds ? all : 0;
    if (!counts)
        return;
    double next = all > lag ? all - lag : all;
    t->counted++;
    t->tokens += tokens;
    t->ns += next;
    for (int i = 0; i < TSR__DRAFT_LARGEST; i++) {
        const double before = t->largest[i];
        t->largest[i] = next > before ? next : before;
        next = next > before ? before : next;
    }
}

/* Returns the time of a token. In a few steps the process may not have had a processor: the longest
 * ones count as the longest of the others. */
static double cost_of_token(const tsr__draft_trial *t)
{
    int64_t longest = t->counted / STEPS_FOR_ONE_LONG;
    longest = longest < TSR__DRAFT_LARGEST ? longest : TSR__DRAFT_LARGEST - 1;
    double ns = t->ns;
    for (int64_t i = 0; i < longest; i++)
        ns -= t->largest[i] - t->largest[longest];
    return ns > 0 ? ns / t->tokens : 1;
}

/* Goes over to a way of making steps, or stays with it. */
static void begin(tsr__draft_trial *t, int way, bool tries, int64_t most)
{
    *t = (tsr__draft_trial){.way = way,
                            .begins = way != t->way,
                            .tries = tries,
                            .most = most,
                            .all_time = t->all_time,
                            .loss = {t->loss[0], t->loss[1]},
                            .expected_building = t->expected_building,
                            .expected = {t->expected[0], t->expected[1]},
                            .cost = {t->cost[0], t->cost[1]}};
}

/* Notes what a trial lost beside the other way. */
static void note_loss(tsr__draft_trial *t, int way, double time, double lag, double building,
                      double tokens)
{
    const double loss = time - tokens * t->cost[!way], own = loss - lag - building;
    t->loss[way] += loss > 0 ? loss : 0;
    t->expected[way] = own > 0 ? own : 0;
}

static bool is_hopeless(const tsr__draft_trial *t)
{
    return t->cost[t->way] > GIVES_UP_AT * t->cost[!t->way];
}

/* Ends a number of steps that were made in one way, and chooses the next one. */
static void compare(tsr__draft_trial *t)
{
    const int way = t->way, other = !way;
    t->cost[way] = cost_of_token(t);
    if (!t->tries) {
        begin(t, other, true, TRIAL);
        return;
    }
    if (t->cost[other] == 0) { /* the first steps */
        const double time = t->time, lag = t->lag_ns, tokens = (double)t->all_tokens;
        begin(t, other, true, FIRST_PLAIN);
        t->first_time = time;
        t->first_lag = lag;
        t->first_tokens = tokens;
        return;
    }
    if (t->first_tokens > 0) {
        note_loss(t, other, t->first_time, t->first_lag, 0, t->first_tokens);
        const bool again = t->cost[other] <= GIVES_UP_AT * t->cost[way];
        begin(t, again ? other : way, again, again ? TRIAL : LEAST_STAY);
        return;
    }
    note_loss(t, way, t->time, t->lag_ns, t->building_ns, (double)t->all_tokens);
    if (way == 1)
        t->expected_building = t->building_ns;
    const int better = t->cost[1] < WORTH_IT * t->cost[0];
    begin(t, better, false, better ? LEAST_STAY_WITH : LEAST_STAY);
}

/* Returns whether a trial of the other way may begin. */
static bool may_try(const tsr_generator *g)
{
    const tsr__draft_trial *t = &g->drafts->trial;
    const double most = MOST_LOSS * t->all_time, loss = t->loss[!t->way] + t->expected[!t->way];
    if (t->way == 1)
        return loss <= most;
    return loss + t->expected_building <= most &&
           loss + t->expected_building + tsr__draft_model_catching_up_ns(g) <= most;
}

int32_t tsr__drafts_wish(const tsr_generator *g)
{
    tsr__drafts *d = g->drafts;
    if (!d)
        return 0;
    tsr__draft_trial *t = &d->trial;
    if (t->tries && t->counted >= GIVES_UP_AFTER && t->cost[!t->way] > 0) {
        t->cost[t->way] = cost_of_token(t);
        if (is_hopeless(t))
            compare(t);
    }
    if (t->steps >= t->most && t->counted > 0 && (t->tries || may_try(g)))
        compare(t);
    return t->way ? best_length(g) : 0;
}
