/* The experts of a model's configuration. */
#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "model/config/config.h"

/* The limits of tsr_route (moe.h). */
enum { MOST_EXPERTS = 1024, MOST_USED = 32 };
enum { MOST_HIDDEN = 134217728 }; /* of all experts of a layer, so that bytes fit 64 bits */

bool tsr__has_experts(const tsr__facts *facts)
{
    const tsr__expert_keys *keys = facts->family->expert_keys;
    return keys && facts->experts.enabled != 0 &&
           !(keys->enabled && facts->experts.count == TSR__UNSET);
}

bool tsr__layer_has_experts(const tsr__facts *facts, int layer)
{
    const tsr__expert_facts *e = &facts->experts;
    if (!tsr__has_experts(facts) || (e->first_dense != TSR__UNSET && layer < e->first_dense) ||
        (e->dense.count > 0 && e->dense.values[layer] != 0))
        return false;
    return e->period == TSR__UNSET || e->period < 1 || (layer + 1) % e->period == 0;
}

bool tsr__any_layer_is_dense(const tsr__facts *facts, int layers)
{
    for (int i = 0; i < layers; i++)
        if (!tsr__layer_has_experts(facts, i) || facts->family->layer.experts->beside_mlp)
            return true;
    return false;
}

/* Checks ------------------------------------------------------------------------------------- */

static tsr_status check_groups(const char *where, const tsr_model_experts *e)
{
    TSR__REQUIRE(
        e->groups >= 0 && e->groups <= e->count && (e->groups <= 1 || e->count % e->groups == 0),
        "%s: %" PRId64 " experts cannot be divided into %d groups", where, e->count, e->groups);
    TSR__REQUIRE(e->groups <= 1 || (e->groups_used >= 1 && e->groups_used <= e->groups &&
                                    e->count / e->groups * e->groups_used >= e->used),
                 "%s: a token uses %d of %d groups of %" PRId64
                 " experts; they must be 1 to %d, and have the %" PRId64 " experts that it uses",
                 where, e->groups_used, e->groups, e->count / e->groups, e->groups, e->used);
    return TSR_OK;
}

static tsr_status check_hidden(const char *where, const tsr_model_experts *e)
{
    TSR__REQUIRE(e->hidden >= 1 && e->hidden <= TSR_MODEL_MAX_HIDDEN,
                 "%s: an expert has %" PRId64 " hidden features; 1 to %d are possible", where,
                 e->hidden, TSR_MODEL_MAX_HIDDEN);
    return TSR_OK;
}

tsr_status tsr__experts_check(const char *where, const tsr_model_experts *e)
{
    TSR__REQUIRE(e->count >= 1 && e->count <= MOST_EXPERTS,
                 "%s: there are %" PRId64 " experts; 1 to %d are possible", where, e->count,
                 MOST_EXPERTS);
    TSR__REQUIRE(e->used >= 1 && e->used <= e->count && e->used <= MOST_USED,
                 "%s: a token uses %" PRId64 " of %" PRId64
                 " experts; 1 to %d, and at most all, are possible",
                 where, e->used, e->count, MOST_USED);
    TSR__TRY(check_hidden(where, e));
    TSR__REQUIRE(e->count * e->hidden <= MOST_HIDDEN,
                 "%s: %" PRId64 " experts of %" PRId64
                 " hidden features are too many; %d features of all experts are possible",
                 where, e->count, e->hidden, MOST_HIDDEN);
    TSR__REQUIRE(e->shared_hidden >= 0 && e->shared_hidden <= TSR_MODEL_MAX_HIDDEN,
                 "%s: the shared expert has %" PRId64 " hidden features; 0 to %d are possible",
                 where, e->shared_hidden, TSR_MODEL_MAX_HIDDEN);
    TSR__REQUIRE(!e->shared_gate || e->shared_hidden > 0,
                 "%s: there is a gate of a shared expert, but no shared expert", where);
    TSR__REQUIRE((unsigned)e->gating <= TSR_GATING_SOFTMAX_CHOSEN,
                 "%s: the gating function of experts is number %d, which is not a tsr_gating",
                 where, (int)e->gating);
    TSR__REQUIRE((unsigned)e->activation <= TSR_EXPERT_SWIGLU_OAI,
                 "%s: the activation of experts is number %d, which is not a "
                 "tsr_expert_activation",
                 where, (int)e->activation);
    TSR__REQUIRE(isfinite(e->scale) && isfinite(e->limit) && e->limit >= 0 && e->limit < 1e30,
                 "%s: the factor of the experts' weights is %g, and the limit of their activation "
                 "%g",
                 where, e->scale, e->limit);
    return check_groups(where, e);
}

/* Taking ------------------------------------------------------------------------------------- */

static tsr_status take_groups(const tsr__facts *facts, tsr_model_experts *out)
{
    const int64_t groups = facts->experts.groups, used = facts->experts.groups_used;
    if (groups == TSR__UNSET || groups == 0 || groups == 1)
        return TSR_OK;
    TSR__REQUIRE(groups > 1 && groups <= MOST_EXPERTS && used >= 1 && used <= groups,
                 "%s: a token uses %" PRId64 " of %" PRId64 " groups of experts", facts->file, used,
                 groups);
    if (facts->experts.groups_by_largest)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: %" PRId64 " groups of experts are chosen by their largest scores "
                         "(group_limited_greedy), which is not supported",
                         facts->file, groups);
    out->groups = (int)groups;
    out->groups_used = (int)used;
    return TSR_OK;
}

/* The size of the shared expert is given directly, or in multiples of an expert's. */
static tsr_status take_shared(const tsr__facts *facts, tsr_model_experts *out)
{
    const tsr__expert_keys *keys = facts->family->expert_keys;
    const int64_t count = facts->experts.shared_count;
    if (keys->shared_hidden && facts->experts.shared_hidden != TSR__UNSET)
        out->shared_hidden = facts->experts.shared_hidden;
    else if (keys->shared_count && count != TSR__UNSET) {
        TSR__REQUIRE(count >= 0 && count <= MOST_EXPERTS,
                     "%s: there are %" PRId64 " shared experts; 0 to %d are possible", facts->file,
                     count, MOST_EXPERTS);
        TSR__TRY(check_hidden(facts->file, out));
        out->shared_hidden = count * out->hidden;
    }
    out->shared_gate = out->shared_gate && out->shared_hidden > 0;
    return TSR_OK;
}

tsr_status tsr__config_take_experts(const tsr__facts *facts, int layers, tsr_model_experts *out)
{
    const tsr__expert_facts *e = &facts->experts;
    TSR__REQUIRE(e->first_dense == TSR__UNSET || (e->first_dense >= 0 && e->first_dense <= layers),
                 "%s: the first %" PRId64 " layers have no experts; 0 to %d are possible",
                 facts->file, e->first_dense, layers);
    TSR__REQUIRE(e->count != TSR__UNSET, "%s: there is no number of experts", facts->file);
    TSR__REQUIRE(e->used != TSR__UNSET, "%s: there is no number of experts per token", facts->file);
    *out = *facts->family->layer.experts;
    out->struct_size = sizeof *out;
    out->count = e->count;
    out->used = e->used;
    out->hidden = e->hidden != TSR__UNSET ? e->hidden : facts->hidden;
    TSR__REQUIRE(out->hidden != TSR__UNSET,
                 "%s: there is no number of hidden features of an expert", facts->file);
    out->scale = e->scale == TSR__UNSET ? 1 : e->scale;
    if (out->activation == TSR_EXPERT_SWIGLU_OAI)
        out->limit = e->limit == TSR__UNSET ? 7 : e->limit;
    if (e->gating != TSR__UNSET)
        out->gating = (tsr_gating)e->gating;
    if (e->normalise != TSR__UNSET)
        out->normalise = e->normalise != 0;
    if (e->choice_bias != TSR__UNSET)
        out->choice_bias = e->choice_bias != 0;
    TSR__TRY(take_groups(facts, out));
    TSR__TRY(take_shared(facts, out));
    return tsr__experts_check(facts->file, out);
}

bool tsr__config_clear_choice_biases(tsr__config *config)
{
    bool any = false;
    for (int i = 0; i < config->public.kind_count; i++) {
        any = any || (config->kinds[i].experts && config->experts[i].choice_bias);
        config->experts[i].choice_bias = false;
    }
    return any;
}
