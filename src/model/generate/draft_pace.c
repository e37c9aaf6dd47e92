/* How many drafts passes have, which depends on how often drafts were right, and on how long passes
 * took; and whether they have any, which depends on a comparison that goes on all the time: steps
 * without drafts may be faster, also because the host need not wait for them (flight.c). Rank 0
 * decides both. */
#include <string.h>

#include "model/generate/draft.h"

/* The steps for which the worse of the two ways, with drafts and without, is tried, and those
 * between trials: twice as many each time that the better way stays the better one, and so many
 * that a trial's loss is a small part of their time. */
#define TRIAL 32
#define FIRST_TRIAL 8 /* builds kernels; its time does not count */
#define LEAST_STAY 512
#define MOST_STAY 8192
#define MOST_LOSS (1.0 / 64)
/* A trial that takes so many times as long as the other way ends after so many steps. */
#define GIVES_UP_AT 1.5
#define GIVES_UP_AFTER 8
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

/* With a draft_model, the cost of each number of drafts is measured. Returns a number of which it
 * is not known, or has been measured long ago, or 0. */
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
    const bool by_model = g->params.draft == TSR_DRAFT_MODEL;
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
    d->trial = (tsr__draft_trial){
        .way = 1, .first = 2, .tries = true, .most = FIRST_TRIAL, .stay = LEAST_STAY};
}

void tsr__drafts_measure(tsr_generator *g, int tokens, uint64_t ns)
{
    tsr__draft_trial *t = &g->drafts->trial;
    const double lag = (double)g->drafts->lag_ns;
    const double own = (double)ns > lag ? (double)ns - lag : 0;
    g->drafts->lag_ns = 0;
    t->steps++;
    t->tokens += tokens;
    t->ns += own;
    double next = own;
    for (int i = 0; i < TSR__DRAFT_LARGEST; i++) {
        const double before = t->largest[i];
        t->largest[i] = next > before ? next : before;
        next = next > before ? before : next;
    }
    t->lag_ns += lag;
}

/* Returns the time of a token. A few steps may have built kernels, or the process may not have had
 * a processor: the longest ones count as the longest of the others. */
static double cost_of_token(const tsr__draft_trial *t)
{
    const double usual = t->largest[TSR__DRAFT_LARGEST - 1];
    double ns = t->ns;
    for (int i = 0; i < TSR__DRAFT_LARGEST - 1; i++)
        ns -= t->largest[i] - usual;
    return ns / t->tokens;
}

/* Goes over to a way of making steps. */
static void begin(tsr__draft_trial *t, int way, bool tries)
{
    *t = (tsr__draft_trial){.way = way,
                            .first = t->first > 0 ? t->first - 1 : 0,
                            .tries = tries,
                            .most = t->first > 1 ? FIRST_TRIAL
                                    : tries      ? TRIAL
                                                 : t->stay,
                            .stay = t->stay,
                            .cost = {t->cost[0], t->cost[1]}};
}

/* Returns how many steps of the other way make up for a trial that was lost. */
static int64_t steps_for_loss(const tsr__draft_trial *t)
{
    const double other = t->cost[!t->way], loss = t->ns + t->lag_ns - t->tokens * other,
                 per_step = other * t->tokens / (double)t->steps;
    return loss > 0 ? (int64_t)(loss / (MOST_LOSS * per_step)) : 0;
}

/* Ends a number of steps that were made in one way, and chooses the next one. */
static void compare(tsr__draft_trial *t)
{
    const int other = !t->way;
    if (t->first == 0 && t->tokens > 0)
        t->cost[t->way] = cost_of_token(t);
    if (!t->tries || t->cost[other] == 0) {
        begin(t, other, true);
        return;
    }
    const bool better = t->cost[t->way] < t->cost[other];
    const int64_t least = better ? 0 : steps_for_loss(t);
    t->stay = better ? LEAST_STAY : t->stay < MOST_STAY ? 2 * t->stay : MOST_STAY;
    t->stay = t->stay > least ? t->stay : least;
    begin(t, better ? t->way : other, false);
}

int32_t tsr__drafts_wish(const tsr_generator *g)
{
    tsr__drafts *d = g->drafts;
    if (!d)
        return 0;
    tsr__draft_trial *t = &d->trial;
    const bool hopeless = t->tries && t->steps >= GIVES_UP_AFTER && t->cost[!t->way] > 0 &&
                          cost_of_token(t) > GIVES_UP_AT * t->cost[!t->way];
    if (t->steps >= t->most || hopeless)
        compare(t);
    return t->way ? best_length(g) : 0;
}
