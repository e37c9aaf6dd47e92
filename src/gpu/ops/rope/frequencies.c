#include "gpu/ops/rope/rope.h"

#include <math.h>

#include "base/error.h"

#define MAX_COMPONENTS 65536

static const double pi = 3.14159265358979323846;

/* Params ------------------------------------------------------------------------------------- */

static tsr_status check_positive(const char *name, double value)
{
    TSR__REQUIRE(isfinite(value) && value > 0, "rope: %s is %g; it must be above 0", name, value);
    return TSR_OK;
}

static tsr_status check_llama3(const tsr_rope_params *params)
{
    TSR__TRY(check_positive("low_frequency_factor", params->low_frequency_factor));
    TSR__REQUIRE(isfinite(params->high_frequency_factor) &&
                     params->high_frequency_factor > params->low_frequency_factor,
                 "rope: high_frequency_factor is %g; it must be above low_frequency_factor, %g",
                 params->high_frequency_factor, params->low_frequency_factor);
    return TSR_OK;
}

static tsr_status check_yarn(const tsr_rope_params *params)
{
    TSR__TRY(check_positive("beta_slow", params->beta_slow));
    TSR__REQUIRE(isfinite(params->beta_fast) && params->beta_fast >= params->beta_slow,
                 "rope: beta_fast is %g; it must be at least beta_slow, %g", params->beta_fast,
                 params->beta_slow);
    TSR__REQUIRE(params->theta > 1, "rope: theta is %g; YARN needs one above 1", params->theta);
    return check_positive("attention_factor", params->attention_factor);
}

static tsr_status check_divisors(const tsr_rope_params *params)
{
    TSR__REQUIRE(params->divisors, "rope: divisors is NULL");
    for (int64_t i = 0; i < params->rotary_dim / 2; i++)
        TSR__REQUIRE(isfinite(params->divisors[i]) && params->divisors[i] > 0,
                     "rope: divisors[%lld] is %g; it must be above 0", (long long)i,
                     (double)params->divisors[i]);
    return check_positive("attention_factor", params->attention_factor);
}

static void set_default(double *value, double standard)
{
    if (*value == 0)
        *value = standard;
}

tsr_status tsr__rope_params_complete(const tsr_rope_params *params, tsr_rope_params *out)
{
    tsr_rope_params p = *params;
    TSR__REQUIRE(p.rotary_dim >= 2 && p.rotary_dim <= MAX_COMPONENTS && p.rotary_dim % 2 == 0,
                 "rope: rotary_dim is %lld; an even number from 2 to %d is needed",
                 (long long)p.rotary_dim, MAX_COMPONENTS);
    TSR__REQUIRE((unsigned)p.pairing <= TSR_ROPE_ADJACENT, "rope: unknown pairing %d",
                 (int)p.pairing);
    TSR__REQUIRE((unsigned)p.scaling <= TSR_ROPE_SCALING_DIVISORS, "rope: unknown scaling %d",
                 (int)p.scaling);
    set_default(&p.theta, 10000);
    TSR__TRY(check_positive("theta", p.theta));
    if (p.scaling != TSR_ROPE_SCALING_NONE && p.scaling != TSR_ROPE_SCALING_DIVISORS)
        TSR__TRY(check_positive("factor", p.factor));
    if (p.scaling == TSR_ROPE_SCALING_YARN) {
        set_default(&p.beta_fast, 32);
        set_default(&p.beta_slow, 1);
        set_default(&p.attention_factor, p.factor > 1 ? 0.1 * log(p.factor) + 1 : 1);
        TSR__TRY(check_yarn(&p));
    } else if (p.scaling == TSR_ROPE_SCALING_DIVISORS) {
        set_default(&p.attention_factor, 1);
        TSR__TRY(check_divisors(&p));
    } else {
        p.attention_factor = 1;
    }
    if (p.scaling == TSR_ROPE_SCALING_LLAMA3) {
        set_default(&p.low_frequency_factor, 1);
        set_default(&p.high_frequency_factor, 4);
        TSR__TRY(check_llama3(&p));
    }
    if (p.scaling == TSR_ROPE_SCALING_LLAMA3 || p.scaling == TSR_ROPE_SCALING_YARN)
        TSR__REQUIRE(isfinite(p.original_length) && p.original_length >= 1,
                     "rope: original_length is %g; it must be at least 1", p.original_length);
    *out = p;
    return TSR_OK;
}

/* Frequencies -------------------------------------------------------------------------------- */

static double llama3(const tsr_rope_params *params, double frequency)
{
    const double length = 2 * pi / frequency;
    if (length < params->original_length / params->high_frequency_factor)
        return frequency;
    if (length > params->original_length / params->low_frequency_factor)
        return frequency / params->factor;
    const double smooth = (params->original_length / length - params->low_frequency_factor) /
                          (params->high_frequency_factor - params->low_frequency_factor);
    return frequency * ((1 - smooth) / params->factor + smooth);
}

/* Returns the number of the pair of components that makes `turns` full turns within the original
 * length, as a real number. */
static double pair_of(const tsr_rope_params *params, double turns)
{
    return (double)params->rotary_dim * log(params->original_length / (2 * pi * turns)) /
           (2 * log(params->theta));
}

/* Returns the frequency of a pair with YaRN. The frequency is a mix of the original one and of that
 * divided by the factor. The share of the latter is 0 up to pair `low`, increases linearly, and is
 * 1 from pair `high` on. */
static double yarn(const tsr_rope_params *params, double frequency, double pair)
{
    const double first = pair_of(params, params->beta_fast),
                 last = pair_of(params, params->beta_slow),
                 low = fmax(params->exact_range ? first : floor(first), 0);
    double high = fmin(params->exact_range ? last : ceil(last), (double)params->rotary_dim - 1);
    if (low == high)
        high += 0.001;
    const double share = fmin(fmax((pair - low) / (high - low), 0), 1);
    return frequency * ((1 - share) + share / params->factor);
}

void tsr__rope_frequencies(const tsr_rope_params *params, double *out)
{
    for (int64_t i = 0; i < params->rotary_dim / 2; i++) {
        const double frequency = pow(params->theta, -2 * (double)i / (double)params->rotary_dim);
        switch (params->scaling) {
        case TSR_ROPE_SCALING_NONE:
            out[i] = frequency;
            break;
        case TSR_ROPE_SCALING_LINEAR:
            out[i] = frequency / params->factor;
            break;
        case TSR_ROPE_SCALING_LLAMA3:
            out[i] = llama3(params, frequency);
            break;
        case TSR_ROPE_SCALING_YARN:
            out[i] = yarn(params, frequency, (double)i);
            break;
        case TSR_ROPE_SCALING_DIVISORS:
            out[i] = frequency / (double)params->divisors[i];
            break;
        }
    }
}
