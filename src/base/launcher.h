/* Finds out from the environment how the processes of a job were started. Communicators and
 * samplers both ask here, so that they agree on the rank of a process. */
#ifndef TSR_BASE_LAUNCHER_H
#define TSR_BASE_LAUNCHER_H

#include "tessera/base.h"

typedef enum tsr__launcher {
    TSR__LAUNCHER_NONE,      /* the environment names no launcher */
    TSR__LAUNCHER_PMIX,      /* mpirun, prterun, srun --mpi=pmix */
    TSR__LAUNCHER_VARIABLES, /* RANK and WORLD_SIZE: tessera launch, torchrun */
    TSR__LAUNCHER_SINGLE     /* TESSERA_BOOT=single */
} tsr__launcher;

/* Gives the launcher and, in `*why`, the reason for the choice, in static storage. Errors:
 * TSR_ERR_INVALID, with "what: " before the reason, if TESSERA_BOOT has an unknown value, or only
 * one of RANK and WORLD_SIZE is set. */
tsr_status tsr__launcher_find(const char *what, tsr__launcher *out, const char **why) TSR_NODISCARD;

#endif
