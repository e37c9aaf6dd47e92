/* The gated delta nets of a model's configuration. */
#include <inttypes.h>

#include "base/error.h"
#include "model/config/config.h"
#include "tessera/recurrent.h"

bool tsr__layer_has_delta_net(const tsr__facts *facts, int layer)
{
    const tsr__delta_facts *d = &facts->delta;
    if (!facts->family->delta_keys)
        return false;
    if (d->which.count > 0)
        return d->which.values[layer] != 0;
    const int64_t period = d->period == TSR__UNSET ? facts->family->delta_keys->period : d->period;
    return (layer + 1) % period != 0;
}

/* Checks ------------------------------------------------------------------------------------- */

static tsr_status check_dim(const char *where, const char *what, int64_t dim)
{
    TSR__REQUIRE(dim >= 4 && dim <= TSR_MAX_DELTA_DIM && dim % 4 == 0,
                 "%s: %s of a delta net is %" PRId64 "; a multiple of 4, at most %d, is possible",
                 where, what, dim, TSR_MAX_DELTA_DIM);
    return TSR_OK;
}

tsr_status tsr__delta_net_check(const char *where, const tsr_model_delta_net *net)
{
    TSR__REQUIRE(net->key_heads >= 1 && net->key_heads <= TSR_MAX_HEADS && net->heads >= 1 &&
                     net->heads <= TSR_MAX_HEADS,
                 "%s: a delta net has %" PRId64 " key heads and %" PRId64
                 " heads; 1 to %d are possible",
                 where, net->key_heads, net->heads, TSR_MAX_HEADS);
    TSR__REQUIRE(net->heads % net->key_heads == 0,
                 "%s: %" PRId64 " heads of a delta net do not divide over %" PRId64 " key heads",
                 where, net->heads, net->key_heads);
    TSR__TRY(check_dim(where, "the key size", net->key_dim));
    TSR__TRY(check_dim(where, "the value size", net->value_dim));
    TSR__REQUIRE(net->taps >= 2 && net->taps <= TSR_MAX_CAUSAL_CONV_TAPS,
                 "%s: the convolution of a delta net has %d taps; 2 to %d are possible", where,
                 net->taps, TSR_MAX_CAUSAL_CONV_TAPS);
    return TSR_OK;
}

tsr_status tsr__state_layer_check(const char *where, const tsr_model_layer *layer)
{
    const struct {
        const char *what;
        double value;
    } fields[] = {
        {"heads", (double)layer->heads},
        {"kv_heads", (double)layer->kv_heads},
        {"head_dim", (double)layer->head_dim},
        {"value_dim", (double)layer->value_dim},
        {"window", (double)layer->window},
        {"rope", layer->rope != NULL},
        {"long_rope", layer->long_rope != NULL},
        {"qkv_bias", layer->qkv_bias},
        {"output_bias", layer->output_bias},
        {"qk_norm", layer->qk_norm},
        {"attention_scale", layer->attention_scale},
        {"softcap", layer->softcap},
        {"temperature", layer->temperature},
        {"sinks", layer->sinks},
        {"output_gate", layer->output_gate},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        TSR__REQUIRE(fields[i].value == 0,
                     "%s: a layer with a %s has %s %g, which only attention has", where,
                     layer->delta_net ? "delta net" : "short convolution", fields[i].what,
                     fields[i].value);
    return TSR_OK;
}

/* Taking ------------------------------------------------------------------------------------- */

void tsr__layer_without_attention(tsr_model_layer *layer)
{
    layer->heads = layer->kv_heads = layer->head_dim = layer->value_dim = 0;
    layer->window = layer->temperature_length = 0;
    layer->rope = layer->long_rope = NULL;
    layer->qkv_bias = layer->output_bias = layer->sinks = layer->output_gate = false;
    layer->qk_norm = TSR_QK_NORM_NONE;
    layer->attention_scale = layer->softcap = layer->temperature = 0;
}

static tsr_status take(const tsr__facts *facts, const char *what, int64_t value, int64_t *out)
{
    TSR__REQUIRE(value != TSR__UNSET, "%s: there is no %s of delta nets", facts->file, what);
    *out = value;
    return TSR_OK;
}

tsr_status tsr__config_take_delta_net(const tsr__facts *facts, tsr_model_delta_net *out)
{
    const tsr__delta_facts *d = &facts->delta;
    int64_t value_dim = d->value_dim;
    *out = (tsr_model_delta_net){.struct_size = sizeof *out};
    TSR__TRY(take(facts, "number of key heads", d->key_heads, &out->key_heads));
    TSR__TRY(take(facts, "number of heads", d->heads, &out->heads));
    TSR__TRY(take(facts, "key size", d->key_dim, &out->key_dim));
    if (value_dim == TSR__UNSET && d->inner != TSR__UNSET) {
        TSR__REQUIRE(out->heads >= 1 && d->inner % out->heads == 0,
                     "%s: %" PRId64 " features of delta nets do not divide over %" PRId64 " heads",
                     facts->file, d->inner, out->heads);
        value_dim = d->inner / out->heads;
    }
    TSR__TRY(take(facts, "value size", value_dim, &out->value_dim));
    TSR__REQUIRE(d->taps == TSR__UNSET || (d->taps >= 2 && d->taps <= TSR_MAX_CAUSAL_CONV_TAPS),
                 "%s: the convolution of a delta net has %" PRId64 " taps; 2 to %d are possible",
                 facts->file, d->taps, TSR_MAX_CAUSAL_CONV_TAPS);
    out->taps = d->taps == TSR__UNSET ? TSR__USUAL_TAPS : (int)d->taps;
    return tsr__delta_net_check(facts->file, out);
}
