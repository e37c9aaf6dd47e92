/* How much work the slowest rank is expected to have with the experts that a token chooses. */
#ifndef TSR_MODEL_WEIGHTS_EXPERT_LOAD_H
#define TSR_MODEL_WEIGHTS_EXPERT_LOAD_H

#include <stdint.h>

#include "base/error.h"

/* Ranks that compute the same experts: one rank, or the ranks of a host. */
typedef struct tsr__expert_group {
    int64_t experts; /* of a layer */
    double work;     /* the time that the group's slowest rank takes for one chosen expert */
} tsr__expert_group;

/* Computes the expected work of the slowest group if `chosen` experts of all groups are used, and
 * every choice is equally probable: exactly for up to 64 of both, otherwise as *by_average.
 * *by_average is the work of the slowest group if every group has its part of the chosen experts.
 * Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__expert_load(int groups, const tsr__expert_group *group, int64_t chosen,
                            double *slowest, double *by_average) TSR_NODISCARD;

#endif
