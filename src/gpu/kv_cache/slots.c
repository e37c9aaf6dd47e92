/* How many slots the states of a cache take. Plans count them, also in builds without Vulkan. */
#include "gpu/internal.h"

int tsr__kv_cache_kept_sequences(const tsr_kv_cache_params *p)
{
    return p->kept_sequences == 0 || p->kept_sequences > p->sequences ? p->sequences
                                                                      : p->kept_sequences;
}

/* A slot for each sequence, and half as many again, because in a step the slots that forks share
 * are still read when each fork writes its own; one for each snapshot; and, for each sequence that
 * keeps states, one for each of them and one that the step reads and nobody needs afterwards. */
int64_t tsr__kv_cache_slots(const tsr_kv_cache_params *p)
{
    const int64_t kept = p->kept_tokens == 0 ? 0 : (int64_t)p->kept_tokens + 1;
    return (int64_t)p->sequences + p->sequences / 2 + p->snapshots +
           tsr__kv_cache_kept_sequences(p) * kept;
}
