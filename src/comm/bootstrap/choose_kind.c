/* Chooses the kind of bootstrap that AUTO stands for. */
#include "comm/bootstrap/backend.h"

#include <stddef.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/launcher.h"

/* Fails if a launcher's variable shows that the launcher has started several processes. The caller
 * has found neither PMIx nor RANK and WORLD_SIZE, without which these processes cannot connect. */
static tsr_status refuse_unconnected(void)
{
    static const struct {
        const char *count, *advice;
    } launchers[] = {
        {"SLURM_STEP_NUM_TASKS", "start it with srun --mpi=pmix"},
        {"OMPI_COMM_WORLD_SIZE", "its mpirun has no PMIx"},
        {"PMI_SIZE", "its launcher uses PMI, not PMIx"},
    };
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        int64_t count;
        TSR__TRY(tsr__env_integer("bootstrap", launchers[i].count, 0, INT32_MAX, 1, &count));
        TSR__REQUIRE(count <= 1,
                     "bootstrap: %s is %d but there is neither PMIX_NAMESPACE nor RANK, so these "
                     "processes cannot find one another: %s, or set TESSERA_BOOT=single",
                     launchers[i].count, (int)count, launchers[i].advice);
    }
    return TSR_OK;
}

tsr_status tsr__bootstrap_choose(tsr__bootstrap_kind *kind, const char **why)
{
    static const tsr__bootstrap_kind kinds[] = {
        [TSR__LAUNCHER_NONE] = TSR__BOOTSTRAP_SINGLE,
        [TSR__LAUNCHER_PMIX] = TSR__BOOTSTRAP_PMIX,
        [TSR__LAUNCHER_VARIABLES] = TSR__BOOTSTRAP_ENV,
        [TSR__LAUNCHER_SINGLE] = TSR__BOOTSTRAP_SINGLE,
        [TSR__LAUNCHER_JOIN] = TSR__BOOTSTRAP_JOIN,
    };
    tsr__launcher launcher;
    TSR__TRY(tsr__launcher_find("bootstrap", &launcher, why));
    if (launcher == TSR__LAUNCHER_NONE)
        TSR__TRY(refuse_unconnected());
    *kind = kinds[launcher];
    return TSR_OK;
}
