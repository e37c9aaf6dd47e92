/* States of delta nets: which of them a generator's cache keeps, and going back to them. */
#include "base/error.h"
#include "gpu/internal.h"
#include "model/config/config.h"
#include "model/generate/generator.h"
#include "model/model.h"

/* Passes in flight, and passes with drafts, have at most so many sequences. */
#define MOST_SEQUENCES 8
#define USUAL_KEPT 4 /* as many as the usual drafts, and more than passes in flight */

/* Chooses the states that a cache keeps so that up to kept_tokens tokens can be taken back. */
static void keep_tokens(int kept_tokens, tsr_kv_cache_params *out)
{
    out->kept_tokens = kept_tokens < TSR_MAX_KEPT_TOKENS ? kept_tokens : TSR_MAX_KEPT_TOKENS;
    out->kept_sequences = out->sequences < MOST_SEQUENCES ? out->sequences : MOST_SEQUENCES;
}

int64_t tsr__generator_state_slots(int sequences, int draft_tokens, int snapshots)
{
    tsr_kv_cache_params p = {
        .struct_size = sizeof p, .sequences = sequences, .snapshots = snapshots};
    keep_tokens(draft_tokens > USUAL_KEPT ? draft_tokens : USUAL_KEPT, &p);
    return tsr__kv_cache_slots(&p);
}

void tsr__generator_choose_states(const tsr_generator *g, const tsr_model *m,
                                  tsr_kv_cache_params *out)
{
    const tsr_generator_params *p = &g->params;
    /* If a step cannot take the oldest pass in flight, it discards it with those behind it. The
     * last token before its drafts is computed again by a draft_model. */
    const int drafts = p->draft == TSR_DRAFT_NONE ? 0 : p->draft_tokens,
              passes = g->flight ? tsr__flight_ahead(g->flight) + 1 : 0;
    if (m != g->model) {
        keep_tokens(drafts + 1, out);
        return;
    }
    keep_tokens(drafts > passes ? drafts : passes, out);
    if (p->prefix_cache) /* which takes them after pieces of prompts */
        out->snapshots = p->snapshots > 0 ? p->snapshots : TSR_GENERATOR_USUAL_SNAPSHOTS;
}

bool tsr__generator_has_states(const tsr_model *model)
{
    int first;
    return tsr__config_delta_net(model->config, &first) != NULL;
}

void tsr__generator_take_back(tsr_generator *g, int number, int64_t length)
{
    tsr__sequence *s = &g->sequences[number];
    const int64_t restorable = tsr_kv_cache_restorable(g->cache, s->cache, length);
    const tsr_status status = tsr_kv_cache_truncate(g->cache, s->cache, restorable);
    if (status != TSR_OK) /* not reached: the sequence exists */
        tsr__log(TSR_LOG_ERROR, "generator: %s", tsr_last_error());
    if (restorable >= length)
        return;
    s->seen = restorable;
    s->in_prompt = true;
    for (; s->block != TSR__PREFIX_NONE && s->whole > restorable; s->whole -= g->params.piece)
        s->block = tsr__prefix_leave_last(g->prefix, s->block);
}
