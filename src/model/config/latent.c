/* Latent attention in a model's configuration. */
#include <inttypes.h>

#include "base/error.h"
#include "model/config/config.h"

tsr_status tsr__latent_check(const char *where, const tsr_model_layer *layer)
{
    const tsr_model_latent *l = layer->latent;
    TSR__REQUIRE(l->q_lora_rank >= 0 && l->q_lora_rank <= TSR_MODEL_MAX_WIDTH,
                 "%s: q_lora_rank is %" PRId64 "; 0 to %d is possible", where, l->q_lora_rank,
                 TSR_MODEL_MAX_WIDTH);
    TSR__REQUIRE(l->kv_lora_rank >= 1 && l->nope_dim >= 1 && l->rope_dim >= 2 &&
                     l->value_dim >= 1 && l->kv_lora_rank <= TSR_MAX_HEAD_DIM - l->rope_dim &&
                     l->nope_dim <= TSR_MAX_HEAD_DIM - l->rope_dim &&
                     l->value_dim <= TSR_MAX_HEAD_DIM,
                 "%s: latent attention has a kv_lora_rank of %" PRId64 ", and heads with %" PRId64
                 " and %" PRId64 " rotated features and values of %" PRId64
                 "; they must be at least 1, and the first two, with the rotated features, and "
                 "values at most %d",
                 where, l->kv_lora_rank, l->nope_dim, l->rope_dim, l->value_dim, TSR_MAX_HEAD_DIM);
    TSR__REQUIRE(layer->kv_heads == layer->heads && layer->head_dim == l->nope_dim + l->rope_dim,
                 "%s: a layer with latent attention has %" PRId64 " heads, %" PRId64
                 " kv heads and a head_dim of %" PRId64 "; as many kv heads as heads, and %" PRId64
                 ", are needed",
                 where, layer->heads, layer->kv_heads, layer->head_dim, l->nope_dim + l->rope_dim);
    TSR__REQUIRE(layer->value_dim == l->value_dim,
                 "%s: a layer with latent attention has a value_dim of %" PRId64
                 ", but its values have %" PRId64 " features",
                 where, layer->value_dim, l->value_dim);
    TSR__REQUIRE(layer->heads <= TSR_MODEL_MAX_WIDTH / (l->nope_dim + l->rope_dim) &&
                     layer->heads <= TSR_MODEL_MAX_WIDTH / l->value_dim &&
                     layer->heads <= TSR_MODEL_MAX_WIDTH / l->kv_lora_rank,
                 "%s: %" PRId64 " heads of latent attention have more than %d features", where,
                 layer->heads, TSR_MODEL_MAX_WIDTH);
    TSR__REQUIRE(!layer->window && layer->softcap == 0 && !layer->qk_norm && !layer->sinks &&
                     layer->temperature == 0 && !layer->qkv_bias && !layer->output_bias &&
                     !layer->output_gate && !layer->long_rope && !layer->delta_net,
                 "%s: a layer with latent attention has a window, soft cap, norm of q and k, "
                 "sinks, temperature, bias of attention, gate, long_rope or delta net; none is "
                 "possible",
                 where);
    TSR__REQUIRE(!layer->rope || layer->rope->rotary_dim == l->rope_dim,
                 "%s: rope rotates %" PRId64 " features, but latent attention %" PRId64, where,
                 layer->rope ? layer->rope->rotary_dim : 0, l->rope_dim);
    return TSR_OK;
}

static tsr_status need(const tsr__facts *facts, const char *what, int64_t value)
{
    TSR__REQUIRE(value != TSR__UNSET, "%s: there is no %s of latent attention", facts->file, what);
    TSR__REQUIRE(value >= 1 && value <= TSR_MAX_HEAD_DIM,
                 "%s: the %s of latent attention is %" PRId64 "; 1 to %d is possible", facts->file,
                 what, value, TSR_MAX_HEAD_DIM);
    return TSR_OK;
}

tsr_status tsr__config_take_latent(const tsr__facts *facts, tsr_model_latent *out)
{
    const tsr__latent_facts *l = &facts->latent;
    int64_t nope = l->nope;
    TSR__REQUIRE(l->q_rank == TSR__UNSET || l->q_rank >= 0,
                 "%s: there is a q_lora_rank of %" PRId64, facts->file, l->q_rank);
    TSR__TRY(need(facts, "kv_lora_rank", l->kv_rank));
    TSR__TRY(need(facts, "number of rotated features", l->rope));
    if (nope == TSR__UNSET && l->head != TSR__UNSET)
        nope = l->head - l->rope;
    TSR__TRY(need(facts, "number of features of a key without rotation", nope));
    TSR__TRY(need(facts, "number of features of a value", l->value));
    *out = (tsr_model_latent){.struct_size = sizeof *out,
                              .q_lora_rank = l->q_rank == TSR__UNSET ? 0 : l->q_rank,
                              .kv_lora_rank = l->kv_rank,
                              .nope_dim = nope,
                              .rope_dim = l->rope,
                              .value_dim = l->value};
    return TSR_OK;
}
