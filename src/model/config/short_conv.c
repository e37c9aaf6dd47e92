/* The short convolutions of a model's configuration, and the sizes of MLPs beside them. */
#include <inttypes.h>

#include "base/error.h"
#include "model/config/config.h"
#include "tessera/recurrent.h"

enum { USUAL_TAPS = 3, USUAL_MULTIPLE = 256 };

bool tsr__layer_has_short_conv(const tsr__facts *facts, int layer)
{
    return facts->family->short_convs && facts->conv.which.count > 0 &&
           facts->conv.which.values[layer] != 0;
}

tsr_status tsr__conv_taps_check(const char *where, int64_t taps)
{
    TSR__REQUIRE(taps >= 2 && taps <= TSR_MAX_CAUSAL_CONV_TAPS,
                 "%s: a short convolution has %" PRId64 " taps; 2 to %d are possible", where, taps,
                 TSR_MAX_CAUSAL_CONV_TAPS);
    return TSR_OK;
}

tsr_status tsr__config_take_short_conv(const tsr__facts *facts, int64_t width, int *taps)
{
    const tsr__conv_facts *c = &facts->conv;
    const int64_t given = c->taps == TSR__UNSET ? USUAL_TAPS : c->taps;
    TSR__TRY(tsr__conv_taps_check(facts->file, given));
    if (c->features != TSR__UNSET && c->features != width)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: short convolutions have %" PRId64 " features; those of the width, "
                         "%" PRId64 ", are supported",
                         facts->file, c->features, width);
    *taps = (int)given;
    return TSR_OK;
}

/* Files of before 2026 have a list of the layers with attention instead of the layers' types. */
void tsr__facts_take_attention_layers(tsr__facts *facts)
{
    tsr__layer_facts *which = &facts->conv.which;
    const tsr__layer_facts *attention = &facts->conv.attention;
    if (which->count > 0 || !facts->conv.lists_attention || facts->layers < 1 ||
        facts->layers > TSR_MODEL_MAX_LAYERS)
        return;
    which->count = (int)facts->layers;
    for (int i = 0; i < which->count; i++)
        which->values[i] = attention->count == 0 || attention->values[i] == 0;
}

/* The size that a layer has is the one of the file by two thirds and a factor, rounded up to a
 * multiple, unless the file says that it is not. */
tsr_status tsr__facts_adjust_hidden(tsr__facts *facts)
{
    const tsr__conv_facts *c = &facts->conv;
    const int64_t multiple = c->multiple == TSR__UNSET ? USUAL_MULTIPLE : c->multiple;
    const double factor = c->factor == TSR__UNSET ? 1 : c->factor;
    if (c->hidden != TSR__UNSET)
        facts->hidden = c->hidden;
    if (c->adjusts == 0 || facts->hidden == TSR__UNSET)
        return TSR_OK;
    TSR__REQUIRE(facts->hidden >= 1 && facts->hidden <= TSR_MODEL_MAX_HIDDEN && multiple >= 1 &&
                     multiple <= TSR_MODEL_MAX_HIDDEN && factor > 0 && factor <= 1000,
                 "%s: %" PRId64 " hidden features, times %g, in multiples of %" PRId64
                 ", are not possible",
                 facts->file, facts->hidden, factor, multiple);
    const int64_t third = 2 * facts->hidden / 3, scaled = (int64_t)(factor * (double)third);
    facts->hidden = (scaled + multiple - 1) / multiple * multiple;
    return TSR_OK;
}
