#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "tessera/training.h"

static float or_default(float value, float standard)
{
    return value == 0 ? standard : value;
}

tsr_status tsr_loss_scaler_init(tsr_loss_scaler *scaler, const tsr_loss_scaler_params *params)
{
    TSR__TAKE(tsr_loss_scaler_params, params);
    TSR__REQUIRE(scaler, "loss_scaler: scaler is NULL");
    const tsr_loss_scaler made = {
        .scale = or_default(params->scale, 65536),
        .growth = or_default(params->growth, 2),
        .backoff = or_default(params->backoff, 0.5f),
        .smallest = or_default(params->smallest, 1),
        .largest = or_default(params->largest, 16777216),
        .interval = params->interval == 0 ? 2000 : params->interval,
    };
    TSR__REQUIRE(
        made.smallest > 0 && made.smallest <= made.scale && made.scale <= made.largest &&
            isfinite(made.largest),
        "loss_scaler: the scale is %g, between %g and %g; it must be finite and in between",
        (double)made.scale, (double)made.smallest, (double)made.largest);
    TSR__REQUIRE(made.growth > 1 && isfinite(made.growth),
                 "loss_scaler: growth is %g; it must be more than 1", (double)made.growth);
    TSR__REQUIRE(made.backoff > 0 && made.backoff < 1,
                 "loss_scaler: backoff is %g; it must be between 0 and 1", (double)made.backoff);
    TSR__REQUIRE(made.interval > 0, "loss_scaler: an interval of %" PRId64 " steps", made.interval);
    *scaler = made;
    return TSR_OK;
}

bool tsr_loss_scaler_update(tsr_loss_scaler *scaler, double norm)
{
    if (!isfinite(norm)) {
        scaler->scale = fmaxf(scaler->scale * scaler->backoff, scaler->smallest);
        scaler->good_steps = 0;
        return false;
    }
    if (++scaler->good_steps >= scaler->interval) {
        scaler->scale = fminf(scaler->scale * scaler->growth, scaler->largest);
        scaler->good_steps = 0;
    }
    return true;
}
