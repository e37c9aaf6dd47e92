/* Finds out from the environment variables how the processes of a job were started. Communicators
 * and samplers both use this function, so that both get the same rank for a process. */
#ifndef TSR_BASE_LAUNCHER_H
#define TSR_BASE_LAUNCHER_H

#include "tessera/base.h"

typedef enum tsr__launcher {
    TSR__LAUNCHER_NONE,      /* the environment names no launcher */
    TSR__LAUNCHER_PMIX,      /* started by mpirun, prterun or srun --mpi=pmix */
    TSR__LAUNCHER_VARIABLES, /* RANK and WORLD_SIZE are set, as by tessera launch and torchrun */
    TSR__LAUNCHER_SINGLE,    /* TESSERA_BOOT is single */
    TSR__LAUNCHER_JOIN       /* TESSERA_BOOT is join: the process joins a running job */
} tsr__launcher;

/* Gives the launcher that the variables name and the reason for the choice. The text of the reason,
 * `*why`, is in static storage. Errors: TSR_ERR_INVALID if TESSERA_BOOT has an unknown value, or if
 * only one of RANK and WORLD_SIZE is set. The error text starts with `what` and a colon. */
tsr_status tsr__launcher_find(const char *what, tsr__launcher *out, const char **why) TSR_NODISCARD;

#endif
