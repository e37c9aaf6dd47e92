/* Choosing the tokens of several steps at once. After a pass with drafts, rank 0 chooses the tokens
 * of this step and of those that follow, as long as they are right drafts. If a draft_model of its
 * own finds the drafts, it also finds those of the next pass. All of this is sent with the tokens
 * of the step, so that a pass costs one exchange of this kind, however many tokens it gives.
 *
 * The exchange has the tokens of the step, one for each sequence, and behind them (−1: there is
 * none)
 *
 *     for each sequence whose drafts the last pass computed: a token for each draft
 *     if drafts are sent: for each sequence: as many drafts as there can be */
#include "base/error.h"
#include "model/generate/draft.h"
#include "model/model.h"

uint64_t tsr__drafts_votes(const tsr_generator_params *params)
{
    return params->draft == TSR_DRAFT_NONE
               ? 0
               : (uint64_t)2 * TSR__DRAFT_SEQUENCES * (uint64_t)params->draft_tokens;
}

/* Choosing ----------------------------------------------------------------------------------- */

tsr_status tsr__drafts_draw(const tsr_generator *g, int number, int row, int64_t position,
                            const float *logits, int32_t *token)
{
    const tsr__sequence *s = &g->sequences[number];
    const tsr__drafted *own = g->drafts ? &g->drafts->of[number] : NULL;
    const int64_t vocabulary = g->model->config->vocabulary;
    if (own && own->drawn && row >= 0 && row < own->found)
        return tsr__sampling_accept(&s->sampling, s->number, position, vocabulary, logits, position,
                                    s->tokens, own->ids[row],
                                    tsr__drafts_probabilities(g, number, row), token);
    return tsr_sampling_draw(&s->sampling, s->number, position, vocabulary, logits, position,
                             s->tokens, token);
}

int tsr__drafts_next_row(const tsr_generator *g, int number)
{
    return g->drafts ? g->drafts->of[number].next - 1 : -1;
}

/* Chooses the tokens that follow `token`, the one of this step, as long as drafts are right. If one
 * cannot be chosen, the step that needs it tries again, and reports the error. */
static void choose_ahead(tsr_generator *g, int number, int32_t token)
{
    tsr__drafted *own = &g->drafts->of[number];
    tsr__sequence *s = &g->sequences[number];
    own->ready = 0;
    if (tsr__limit_changes(s))
        return;
    while (own->ready < own->found && token == own->ids[own->ready] &&
           !tsr__limit_ends(g, s, token)) {
        const int row = own->ready + 1;
        const int64_t position = s->length + row;
        s->tokens[position - 1] = token;
        if (tsr__drafts_draw(g, number, row, position, tsr__drafts_row(g, number, row), &token) !=
            TSR_OK)
            return;
        own->tokens[own->ready++] = token;
    }
}

/* Drafts of the next pass -------------------------------------------------------------------- */

/* Describes the drafts that a sequence will need after `token`, the one of this step, and those
 * that have been chosen ahead. `most` is 0 if it needs none. */
static tsr__draft_text text_after(const tsr_generator *g, int number, int32_t token, int wanted)
{
    const tsr__drafted *own = &g->drafts->of[number];
    const tsr__sequence *s = &g->sequences[number];
    const bool fresh = own->next == 1, chosen = g->chosen[number] >= 0;
    const int ready = fresh ? own->ready : 0;
    const int32_t last = ready > 0 ? own->tokens[ready - 1] : token;
    tsr__draft_text text = {.number = number, .length = s->length + 1 + ready};
    /* The token after this one is in the cache already. */
    const bool there = own->next > 0 && !(fresh && ready > 0) && own->next <= own->found &&
                       token == own->ids[own->next - 1];
    if (there || (chosen && own->next > 0) || own->planned_at == text.length ||
        token >= g->model->config->vocabulary || tsr__limit_ends(g, s, last))
        return text;
    text.most = tsr__drafts_most(g, number, text.length, wanted);
    s->tokens[text.length - 1] = last;
    return text;
}

/* Finds the drafts of the next pass, and writes them to votes[count · most]. */
static tsr_status plan_next(tsr_generator *g, int count, const int *numbers, const int32_t *tokens,
                            int wanted, int32_t *votes)
{
    tsr__drafts *d = g->drafts;
    tsr__draft_text texts[TSR__DRAFT_SEQUENCES];
    bool prompt = false;
    for (int i = 0; i < count; i++) {
        const tsr__sequence *s = &g->sequences[numbers[i]];
        texts[i] = text_after(g, numbers[i], tokens[i], wanted);
        prompt = prompt || s->length == s->prompt;
    }
    const uint64_t before = d->lag_ns;
    TSR__TRY(tsr__draft_model_find(g, count, texts));
    *(prompt ? &g->stats.prompt_ns : &g->stats.generated_ns) += d->lag_ns - before;
    g->stats.generated_ns += d->find_ns;
    for (int i = 0; i < count; i++)
        for (int t = 0; t < texts[i].count; t++)
            votes[i * d->most + t] = texts[i].ids[t];
    for (int i = 0; i < count; i++)
        if (texts[i].count > 0)
            g->drafts->of[numbers[i]].plan_drawn = texts[i].drawn;
    return TSR_OK;
}

/* The exchange ------------------------------------------------------------------------------- */

static bool is_sent(const tsr_generator *g, int count)
{
    return g->drafts->sent && count <= TSR__DRAFT_SEQUENCES;
}

int tsr__drafts_vote(tsr_generator *g, int count, const int *numbers, const int32_t *tokens,
                     int wanted, int32_t *votes, tsr_status *status)
{
    tsr__drafts *d = g->drafts;
    const bool chooses = tsr__model_chooses(g->model);
    int at = 0;
    if (!d)
        return 0;
    for (int i = 0; i < count; i++) {
        const tsr__drafted *own = &d->of[numbers[i]];
        if (own->next != 1)
            continue;
        if (chooses && *status == TSR_OK)
            choose_ahead(g, numbers[i], tokens[i]);
        for (int t = 0; t < own->count; t++)
            votes[at++] = chooses && t < own->ready ? own->tokens[t] : -1;
    }
    if (!is_sent(g, count))
        return at;
    for (int t = 0; t < count * d->most; t++)
        votes[at + t] = -1;
    if (chooses && *status == TSR_OK && d->model && wanted > 0)
        *status = plan_next(g, count, numbers, tokens, wanted, votes + at);
    return at + count * d->most;
}

void tsr__drafts_note_votes(tsr_generator *g, int count, const int *numbers, const int32_t *votes)
{
    tsr__drafts *d = g->drafts;
    int at = 0;
    for (int i = 0; d && i < count; i++) {
        tsr__drafted *own = &d->of[numbers[i]];
        if (own->next != 1)
            continue;
        own->ready = 0;
        for (int t = 0; t < own->count; t++, at++)
            if (votes[at] >= 0)
                own->tokens[own->ready++] = votes[at];
    }
    for (int i = 0; d && is_sent(g, count) && i < count; i++, at += d->most) {
        tsr__drafted *own = &d->of[numbers[i]];
        tsr__draft_text text = {.number = numbers[i], .drawn = own->plan_drawn};
        while (text.count < d->most && votes[at + text.count] >= 0) {
            text.ids[text.count] = votes[at + text.count];
            text.count++;
        }
        text.length = g->sequences[numbers[i]].length + 1 + (own->next == 1 ? own->ready : 0);
        if (text.count > 0)
            tsr__drafts_plan(g, &text);
    }
}

bool tsr__drafts_all_ready(const tsr_generator *g, int count, const int *numbers)
{
    const tsr_model *m = g->model;
    if (!g->drafts || count == 0 || (tsr_group_size(m->group) == 1 && !m->stages))
        return false;
    /* `chosen` may have a token that only this rank knows (candidates.c). */
    for (int i = 0; i < count; i++)
        if (g->drafts->of[numbers[i]].given_at != g->sequences[numbers[i]].length)
            return false;
    return true;
}
