/* How many states of delta nets a generator's cache has. Plans count them. */
#include "gpu/internal.h"
#include "model/generate/generator.h"

/* Passes in flight, and passes with drafts, have at most so many sequences. */
#define MOST_SEQUENCES 8
#define USUAL_KEPT 4 /* as many as the usual drafts, and more than passes in flight */

void tsr__generator_keep_tokens(int kept_tokens, tsr_kv_cache_params *out)
{
    out->kept_tokens = kept_tokens < TSR_MAX_KEPT_TOKENS ? kept_tokens : TSR_MAX_KEPT_TOKENS;
    out->kept_sequences = out->sequences < MOST_SEQUENCES ? out->sequences : MOST_SEQUENCES;
}

int64_t tsr__generator_state_slots(int sequences, int draft_tokens, int snapshots)
{
    tsr_kv_cache_params p = {
        .struct_size = sizeof p, .sequences = sequences, .snapshots = snapshots};
    tsr__generator_keep_tokens(draft_tokens > USUAL_KEPT ? draft_tokens : USUAL_KEPT, &p);
    return tsr__kv_cache_slots(&p);
}
