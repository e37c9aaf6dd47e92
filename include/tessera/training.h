/* What training loops need on the host: learning rates by step, and the scale of losses for f16.
 * Plain C: no device, no network, no allocation.
 *
 *     const tsr_schedule schedule = {.kind = TSR_SCHEDULE_COSINE, .learning_rate = 1e-3,
 *                                    .final_rate = 1e-4, .warmup_steps = 100, .steps = 2000};
 *     for (int64_t step = 0; step < 2000; step++) {
 *         ...
 *         tsr_optimizer_step(optimizer, (float)tsr_schedule_rate(&schedule, step));
 *     }
 *
 * Threads: functions without state; a tsr_loss_scaler is used by one thread at a time. */
#ifndef TESSERA_TRAINING_H
#define TESSERA_TRAINING_H

#include <stdbool.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rates --------------------------------------------------------------------------------
 */

typedef enum tsr_schedule_kind {
    TSR_SCHEDULE_CONSTANT =
        0,                   /* learning_rate after the warm-up; final_rate and steps are ignored */
    TSR_SCHEDULE_LINEAR = 1, /* a line from learning_rate to final_rate */
    TSR_SCHEDULE_COSINE = 2  /* half a period of a cosine between the two */
} tsr_schedule_kind;

/* The rate of step i, counted from 0:
 *
 *     i < warmup_steps          learning_rate · (i + 1) / (warmup_steps + 1)
 *     warmup_steps ≤ i ≤ steps  with t = (i − warmup_steps) / (steps − warmup_steps):
 *                               linear: final_rate + (1 − t) · (learning_rate − final_rate)
 *                               cosine: final_rate + (1 + cos πt)/2 · (learning_rate − final_rate)
 *     i > steps                 final_rate
 *
 * The cosine is that of nanoGPT's train.py, whose lr_decay_iters is `steps`. */
typedef struct tsr_schedule {
    tsr_schedule_kind kind;
    double learning_rate, final_rate;
    int64_t warmup_steps;
    int64_t steps; /* the step at which the rate becomes final_rate */
} tsr_schedule;

/* Checks a schedule. Errors: TSR_ERR_INVALID for a kind that does not exist, a rate that is
 * negative or not finite, a negative warm-up, and, unless it is constant, steps that are not more
 * than the warm-up. */
TSR_API TSR_NODISCARD tsr_status tsr_schedule_check(const tsr_schedule *schedule);
/* Returns the rate of a step; NaN for a schedule that tsr_schedule_check refuses and for a negative
 * step. */
TSR_API double tsr_schedule_rate(const tsr_schedule *schedule, int64_t step);

/* Loss scaling ----------------------------------------------------------------------------------
 *
 * Gradients of f16 are computed from a loss that is multiplied by a scale, so that small ones do
 * not vanish. If one of them overflows, the step is skipped and the scale becomes smaller; after
 * many steps without overflow it grows. The decision is made from the global norm of the gradients,
 * which has the same bits on all ranks, so that all ranks decide alike:
 *
 *     ... backward pass from dy · scaler.scale ...
 *     tsr_optimizer_clip(optimizer, 1.0f, tsr_optimizer_clip_params(.loss_scale = scaler.scale),
 *                        &norm);
 *     if (tsr_loss_scaler_update(&scaler, norm))
 *         tsr_optimizer_step(optimizer, rate);
 *     tsr_optimizer_zero_grad(optimizer);
 */

/* Memory of the caller's. `scale` and `good_steps` are its state, which a checkpoint may hold. */
typedef struct tsr_loss_scaler {
    float scale;
    float growth, backoff; /* factors */
    float smallest, largest;
    int64_t interval; /* steps without overflow after which the scale grows */
    int64_t good_steps;
} tsr_loss_scaler;

typedef struct tsr_loss_scaler_params {
    float scale;             /* 0: 65536 */
    float growth;            /* more than 1; 0: 2 */
    float backoff;           /* less than 1; 0: 0.5 */
    int64_t interval;        /* 0: 2000 */
    float smallest, largest; /* bounds of the scale; 0: 1 and 2^24 */
} tsr_loss_scaler_params;
#define tsr_loss_scaler_params(...) (&(tsr_loss_scaler_params){__VA_ARGS__})

/* `params` may be NULL. Powers of two change no bit of a gradient that is in range. Errors:
 * TSR_ERR_INVALID for numbers out of the ranges above. */
TSR_API TSR_NODISCARD tsr_status tsr_loss_scaler_init(tsr_loss_scaler *scaler,
                                                      const tsr_loss_scaler_params *params);
/* Takes note of the norm of a step's gradients. Returns whether the step is to be made: false if
 * the norm is not finite. */
TSR_API bool tsr_loss_scaler_update(tsr_loss_scaler *scaler, double norm);

#ifdef __cplusplus
}
#endif

#endif
