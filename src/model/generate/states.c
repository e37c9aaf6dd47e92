/* States of delta nets and short convolutions: which of them a generator's cache keeps, and going
 * back to them. */
#include "base/error.h"
#include "gpu/internal.h"
#include "model/config/config.h"
#include "model/generate/generator.h"
#include "model/model.h"

bool tsr__generator_has_states(const tsr_model *model)
{
    return tsr__config_has_states(model->config);
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
