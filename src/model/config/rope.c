/* Frequency scaling of rotary positions, from the names and numbers of files. */
#include "model/config/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"

static bool is_set(double value)
{
    return value != TSR__UNSET;
}

static tsr_status positive(const tsr__facts *facts, const char *what, double value)
{
    TSR__REQUIRE(is_set(value), "%s: rope scaling '%s' has no %s", facts->file, facts->rope.type,
                 what);
    TSR__REQUIRE(isfinite(value) && value > 0 && value <= 1e12,
                 "%s: rope scaling '%s' has a %s of %g; a positive number is needed", facts->file,
                 facts->rope.type, what, value);
    return TSR_OK;
}

static tsr_status take_llama3(const tsr__facts *facts, tsr_rope_params *out)
{
    const tsr__rope_facts *rope = &facts->rope;
    out->scaling = TSR_ROPE_SCALING_LLAMA3;
    out->low_frequency_factor = is_set(rope->low_frequency_factor) ? rope->low_frequency_factor : 1;
    out->high_frequency_factor =
        is_set(rope->high_frequency_factor) ? rope->high_frequency_factor : 4;
    TSR__TRY(positive(facts, "low_freq_factor", out->low_frequency_factor));
    TSR__TRY(positive(facts, "high_freq_factor", out->high_frequency_factor));
    out->original_length = rope->original_length;
    return positive(facts, "original length", out->original_length);
}

/* Returns the factor by which YaRN multiplies rotated components. */
static double yarn_scale(double factor, double scale)
{
    return factor <= 1 ? 1 : 0.1 * scale * log(factor) + 1;
}

double tsr__yarn_score_factor(const tsr__facts *facts)
{
    const tsr__rope_facts *rope = &facts->rope;
    const bool scaled =
        strcmp(rope->type, "yarn") == 0 && is_set(rope->mscale_all_dim) && is_set(rope->factor);
    const double scale = scaled ? yarn_scale(rope->factor, rope->mscale_all_dim) : 1;
    return scale * scale;
}

double tsr__yarn_score_scale(const tsr_model_layer *layer)
{
    const tsr_rope_params *rope = layer->rope;
    if (!layer->latent || !rope || rope->scaling != TSR_ROPE_SCALING_YARN || rope->factor <= 1 ||
        layer->attention_scale <= 0)
        return 0;
    const double root = sqrt(layer->attention_scale * sqrt((double)layer->head_dim));
    return (root - 1) / (0.1 * log(rope->factor));
}

double tsr__yarn_attention(double factor)
{
    return yarn_scale(factor, 1);
}

static tsr_status take_yarn(const tsr__facts *facts, int64_t context, tsr_rope_params *out)
{
    const tsr__rope_facts *rope = &facts->rope;
    out->scaling = TSR_ROPE_SCALING_YARN;
    out->exact_range = rope->truncate == 0;
    out->beta_fast = is_set(rope->beta_fast) ? rope->beta_fast : 32;
    out->beta_slow = is_set(rope->beta_slow) ? rope->beta_slow : 1;
    TSR__TRY(positive(facts, "beta_fast", out->beta_fast));
    TSR__TRY(positive(facts, "beta_slow", out->beta_slow));
    out->original_length = is_set(rope->original_length) ? rope->original_length : (double)context;
    TSR__TRY(positive(facts, "original length", out->original_length));
    if (is_set(rope->attention_factor))
        out->attention_factor = rope->attention_factor;
    else if (is_set(rope->mscale) && is_set(rope->mscale_all_dim) && rope->mscale > 0 &&
             rope->mscale_all_dim > 0)
        out->attention_factor =
            yarn_scale(out->factor, rope->mscale) / yarn_scale(out->factor, rope->mscale_all_dim);
    else
        out->attention_factor = yarn_scale(out->factor, 1);
    return positive(facts, "attention_factor", out->attention_factor);
}

double tsr__long_attention(double context, double original_length)
{
    return context <= original_length
               ? 1
               : sqrt(1 + log(context / original_length) / log(original_length));
}

/* LongRoPE: *out up to the original length, and *beyond for longer contexts. */
static tsr_status take_long(const tsr__facts *facts, int64_t context, tsr_rope_params *out,
                            tsr_rope_params *beyond)
{
    const tsr__rope_facts *rope = &facts->rope;
    const int64_t pairs = out->rotary_dim / 2;
    TSR__REQUIRE(rope->short_count == pairs && rope->long_count == pairs,
                 "%s: LongRoPE has %d short and %d long factors; %" PRId64 " of each are needed",
                 facts->file, rope->short_count, rope->long_count, pairs);
    for (int64_t i = 0; i < pairs; i++)
        TSR__REQUIRE(isfinite(rope->short_divisors[i]) && rope->short_divisors[i] > 0 &&
                         isfinite(rope->long_divisors[i]) && rope->long_divisors[i] > 0,
                     "%s: factors %" PRId64 " of LongRoPE are %g and %g; they must be above 0",
                     facts->file, i, (double)rope->short_divisors[i],
                     (double)rope->long_divisors[i]);
    out->scaling = TSR_ROPE_SCALING_DIVISORS;
    out->original_length = rope->original_length;
    TSR__TRY(positive(facts, "original length", out->original_length));
    TSR__REQUIRE(out->original_length > 1,
                 "%s: the original length of LongRoPE is %g; more than 1 is needed", facts->file,
                 out->original_length);
    out->attention_factor = is_set(rope->attention_factor)
                                ? rope->attention_factor
                                : tsr__long_attention((double)context, out->original_length);
    TSR__TRY(positive(facts, "attention_factor", out->attention_factor));
    *beyond = *out;
    out->divisors = rope->short_divisors;
    beyond->divisors = rope->long_divisors;
    return TSR_OK;
}

/* The first pairs of whole heads are rotated: the frequencies of others are divided by this. */
#define NOT_ROTATED 1e30F

static bool is_proportional(const tsr__rope_facts *rope)
{
    return strcmp(rope->type, "proportional") == 0;
}

tsr_status tsr__rope_take_proportional(tsr__facts *facts)
{
    tsr__rope_facts *rope = &facts->rope;
    const int64_t head_dim =
        facts->full_head_dim != TSR__UNSET ? facts->full_head_dim : facts->head_dim;
    const double partial = is_set(rope->partial) ? rope->partial : 1;
    if (!is_proportional(rope))
        return TSR_OK;
    TSR__REQUIRE(head_dim >= 2 && head_dim % 2 == 0 && head_dim <= TSR_MAX_HEAD_DIM &&
                     partial > 0 && partial <= 1,
                 "%s: proportional rope rotates %g of heads of %" PRId64 " features", facts->file,
                 partial, head_dim);
    rope->short_count = (int)(head_dim / 2);
    for (int i = 0; i < rope->short_count; i++)
        rope->short_divisors[i] = i < (int)(partial * (double)head_dim / 2) ? 1 : NOT_ROTATED;
    rope->partial = TSR__UNSET;
    return TSR_OK;
}

int64_t tsr__rope_proportional(const tsr_rope_params *rope)
{
    int64_t rotated = 0;
    if (rope->scaling != TSR_ROPE_SCALING_DIVISORS)
        return 0;
    while (rotated < rope->rotary_dim / 2 && rope->divisors[rotated] == 1)
        rotated++;
    for (int64_t i = rotated; i < rope->rotary_dim / 2; i++)
        if (rope->divisors[i] != NOT_ROTATED)
            return 0;
    return rotated;
}

tsr_status tsr__rope_from_proportional(const char *file, int64_t count, const float *divisors,
                                       tsr__rope_facts *rope)
{
    const tsr_rope_params made = {
        .rotary_dim = 2 * count, .scaling = TSR_ROPE_SCALING_DIVISORS, .divisors = divisors};
    const int64_t rotated = tsr__rope_proportional(&made);
    if (rotated == 0)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: rope_freqs.weight is not 1, … and then 1e30, …, which divide the "
                         "frequencies of this architecture",
                         file);
    strcpy(rope->type, "proportional");
    rope->partial = (double)rotated / (double)count;
    return TSR_OK;
}

static tsr_status take_scaling(const tsr__facts *facts, int64_t context, tsr_rope_params *out,
                               tsr_rope_params *beyond)
{
    const tsr__rope_facts *rope = &facts->rope;
    const char *type = rope->type;
    if (*type == '\0' || strcmp(type, "default") == 0 || strcmp(type, "none") == 0)
        return TSR_OK;
    /* Positions of images, which are equal in a text. */
    if (strcmp(type, "mrope") == 0 && facts->family->gguf_sections)
        return TSR_OK;
    if (is_proportional(rope)) {
        TSR__REQUIRE(rope->short_count == out->rotary_dim / 2,
                     "%s: proportional rope is not supported in this architecture", facts->file);
        out->scaling = TSR_ROPE_SCALING_DIVISORS;
        out->divisors = rope->short_divisors;
        out->attention_factor = 1;
        return TSR_OK;
    }
    if (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0)
        return take_long(facts, context, out, beyond);
    const bool llama3 = strcmp(type, "llama3") == 0, yarn = strcmp(type, "yarn") == 0;
    if (!llama3 && !yarn && strcmp(type, "linear") != 0)
        return tsr__fail(
            TSR_ERR_UNSUPPORTED,
            "%s: rope scaling '%s' is not supported; none, linear, llama3, yarn and longrope are",
            facts->file, type);
    TSR__TRY(positive(facts, "factor", rope->factor));
    out->factor = rope->factor;
    if (llama3)
        return take_llama3(facts, out);
    if (yarn)
        return take_yarn(facts, context, out);
    out->scaling = TSR_ROPE_SCALING_LINEAR;
    return TSR_OK;
}

tsr_status tsr__rope_make(const tsr__facts *facts, int64_t head_dim, int64_t context,
                          tsr_rope_params *out, tsr_rope_params *beyond)
{
    const tsr__rope_facts *rope = &facts->rope;
    *beyond = (tsr_rope_params){.struct_size = sizeof *beyond};
    tsr_rope_params made = {.struct_size = sizeof made,
                            .rotary_dim = head_dim,
                            .theta = is_set(rope->theta) ? rope->theta : 10000};
    TSR__REQUIRE(isfinite(made.theta) && made.theta > 0 && made.theta <= 1e15,
                 "%s: the base of rope is %g; a positive number is needed", facts->file,
                 made.theta);
    if (is_set(rope->partial)) {
        TSR__REQUIRE(rope->partial > 0 && rope->partial <= 1,
                     "%s: partial_rotary_factor is %g; more than 0 and at most 1 is possible",
                     facts->file, rope->partial);
        made.rotary_dim = (int64_t)((double)head_dim * rope->partial);
    }
    if (facts->rotary_dim != TSR__UNSET)
        made.rotary_dim = facts->rotary_dim;
    TSR__REQUIRE(made.rotary_dim >= 2 && made.rotary_dim % 2 == 0 && made.rotary_dim <= head_dim,
                 "%s: %" PRId64 " components of a head of %" PRId64
                 " are rotated; an even number from 2 is needed",
                 facts->file, made.rotary_dim, head_dim);
    TSR__TRY(take_scaling(facts, context, &made, beyond));
    *out = made;
    return TSR_OK;
}

double tsr__llama3_divisor(const tsr_rope_params *rope, int64_t i)
{
    const double frequency = pow(rope->theta, -2 * (double)i / (double)rope->rotary_dim);
    const double wave = 2 * 3.14159265358979323846 / frequency, low = rope->low_frequency_factor,
                 high = rope->high_frequency_factor, original = rope->original_length;
    if (wave < original / high)
        return 1;
    if (wave > original / low)
        return rope->factor;
    const double smooth = (original / wave - low) / (high - low);
    return 1 / ((1 - smooth) / rope->factor + smooth);
}

tsr_status tsr__rope_from_factors(const char *file, double theta, int64_t count,
                                  const float *factors, tsr__rope_facts *rope)
{
    /* All models whose GGUF files have divisors of frequencies use these parameters of Llama 3's
     * scaling; only `factor` differs between them. */
    tsr_rope_params llama3 = {.struct_size = sizeof llama3,
                              .rotary_dim = 2 * count,
                              .theta = theta,
                              .factor = 1,
                              .low_frequency_factor = 1,
                              .high_frequency_factor = 4,
                              .original_length = 8192};
    for (int64_t i = 0; i < count; i++) {
        TSR__REQUIRE(isfinite(factors[i]) && factors[i] > 0,
                     "%s: element %" PRId64 " of rope_freqs.weight is %g", file, i,
                     (double)factors[i]);
        llama3.factor = fmax(llama3.factor, (double)factors[i]);
    }
    for (int64_t i = 0; i < count; i++) {
        const double want = tsr__llama3_divisor(&llama3, i);
        if (fabs((double)factors[i] - want) > 1e-3 * want)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "%s: rope_freqs.weight is not the scaling of Llama 3: element %" PRId64
                             " is %g, not %g; others are not supported",
                             file, i, (double)factors[i], want);
    }
    if (llama3.factor == 1)
        return TSR_OK;
    strcpy(rope->type, "llama3");
    rope->factor = llama3.factor;
    rope->original_length = llama3.original_length;
    return TSR_OK;
}
