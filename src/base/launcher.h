/* How the processes of a job were started, as their environment says. Communicators and samplers
 * ask here, so that both take a process for the same rank. */
#ifndef TSR_BASE_LAUNCHER_H
#define TSR_BASE_LAUNCHER_H

#include "tessera/base.h"

typedef enum tsr__launcher {
    TSR__LAUNCHER_NONE,      /* that is known here */
    TSR__LAUNCHER_PMIX,      /* mpirun, prterun, srun --mpi=pmix */
    TSR__LAUNCHER_VARIABLES, /* RANK and WORLD_SIZE: tessera launch, torchrun */
    TSR__LAUNCHER_SINGLE     /* TESSERA_BOOT says so */
} tsr__launcher;

/* `why` is in static storage. Errors: TSR_ERR_INVALID, "what: " before the reason, for a
 * TESSERA_BOOT that names nothing, and for RANK without WORLD_SIZE or the other way round. */
tsr_status tsr__launcher_find(const char *what, tsr__launcher *out, const char **why) TSR_NODISCARD;

#endif
