/* Helpers for training loops: the learning rate of each step, and the scale of the loss for f16.
 * They run on the host, and need no device, no network and no allocation.
 *
 *     const tsr_schedule *schedule =
 *         tsr_schedule(.kind = TSR_SCHEDULE_COSINE, .learning_rate = 1e-3, .final_rate = 1e-4,
 *                      .warmup_steps = 100, .steps = 2000);
 *     for (int64_t step = 0; step < 2000; step++) {
 *         ...
 *         tsr_optimizer_step(optimizer, (float)tsr_schedule_rate(schedule, step));
 *     }
 *
 * Threads: the functions of schedules are thread-safe. Only one thread at a time may use a
 * tsr_loss_scaler. */
#ifndef TESSERA_TRAINING_H
#define TESSERA_TRAINING_H

#include <stdbool.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rates ----------------------------------------------------------------------------- */

typedef enum tsr_schedule_kind {
    TSR_SCHEDULE_CONSTANT =
        0,                   /* learning_rate after the warm-up; final_rate and steps are ignored */
    TSR_SCHEDULE_LINEAR = 1, /* a line from learning_rate to final_rate */
    TSR_SCHEDULE_COSINE = 2  /* half a period of a cosine between the two */
} tsr_schedule_kind;

/* A schedule gives each step i, counted from 0, its learning rate:
 *
 *     i < warmup_steps          learning_rate · (i + 1) / (warmup_steps + 1)
 *     warmup_steps ≤ i ≤ steps  with t = (i − warmup_steps) / (steps − warmup_steps):
 *                               linear: final_rate + (1 − t) · (learning_rate − final_rate)
 *                               cosine: final_rate + (1 + cos πt)/2 · (learning_rate − final_rate)
 *     i > steps                 final_rate
 *
 * COSINE is the schedule of nanoGPT's train.py, which calls `steps` lr_decay_iters. */
typedef struct tsr_schedule {
    size_t struct_size;
    tsr_schedule_kind kind;
    double learning_rate, final_rate;
    int64_t warmup_steps;
    int64_t steps; /* the step at which the rate becomes final_rate */
} tsr_schedule;
#define tsr_schedule(...) (&(tsr_schedule){.struct_size = sizeof(tsr_schedule), __VA_ARGS__})

/* Checks a schedule. Errors: those of struct_size (base.h); TSR_ERR_INVALID for a kind that does
 * not exist, a rate that is negative or not finite, a negative warm-up, and, unless it is constant,
 * steps that are not more than the warm-up. */
TSR_API TSR_NODISCARD tsr_status tsr_schedule_check(const tsr_schedule *schedule);
/* Returns the rate of a step; NaN for a schedule that tsr_schedule_check refuses and for a negative
 * step. */
TSR_API double tsr_schedule_rate(const tsr_schedule *schedule, int64_t step);

/* Loss scaling ----------------------------------------------------------------------------------
 *
 * With f16, the loss is multiplied by a scale before the backward pass, so that small gradients do
 * not become 0. If a gradient overflows, the step is skipped and the scale becomes smaller. After
 * many steps without overflow the scale grows. The decision depends on the global norm of the
 * gradients only. The norm has the same bits on all ranks, so all ranks make the same decision:
 *
 *     ... backward pass from dy · scaler.scale ...
 *     tsr_optimizer_clip(optimizer, 1.0f, tsr_optimizer_clip_params(.loss_scale = scaler.scale),
 *                        &norm);
 *     if (tsr_loss_scaler_update(&scaler, norm))
 *         tsr_optimizer_step(optimizer, rate);
 *     tsr_optimizer_zero_grad(optimizer); */

/* A loss scaler, in the caller's memory: a value whose fields never change (base.h). Its state is
 * `scale` and `good_steps`; a program may save these two in a checkpoint. */
typedef struct tsr_loss_scaler {
    float scale;
    float growth, backoff; /* factors by which `scale` changes */
    float smallest, largest;
    int64_t interval; /* steps without overflow after which the scale grows */
    int64_t good_steps;
} tsr_loss_scaler;

typedef struct tsr_loss_scaler_params {
    size_t struct_size;
    float scale;             /* 0: 65536 */
    float growth;            /* more than 1; 0: 2 */
    float backoff;           /* less than 1; 0: 0.5 */
    int64_t interval;        /* 0: 2000 */
    float smallest, largest; /* bounds of the scale; 0: 1 and 2^24 */
} tsr_loss_scaler_params;
#define tsr_loss_scaler_params(...)                                                                \
    (&(tsr_loss_scaler_params){.struct_size = sizeof(tsr_loss_scaler_params), __VA_ARGS__})

/* Initialises a loss scaler. `params` may be NULL. The scale should be a power of two: it then does
 * not change the bits of the significand of a gradient that is in range. Errors: TSR_ERR_INVALID
 * for numbers out of the ranges above. */
TSR_API TSR_NODISCARD tsr_status tsr_loss_scaler_init(tsr_loss_scaler *scaler,
                                                      const tsr_loss_scaler_params *params);
/* Updates the scale from the norm of a step's gradients. Returns false if the norm is not finite:
 * the caller must then skip the step. */
TSR_API bool tsr_loss_scaler_update(tsr_loss_scaler *scaler, double norm);

#ifdef __cplusplus
}
#endif

#endif
