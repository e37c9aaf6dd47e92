#include "comm/boot/choose.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "comm/boot/variables.h"

static tsr_status as_asked(const char *asked, tsr__boot_kind *kind, const char **why)
{
    static const struct {
        const char *name, *why;
        tsr__boot_kind kind;
    } names[] = {
        {"pmix", "TESSERA_BOOT is pmix", TSR__BOOT_PMIX},
        {"env", "TESSERA_BOOT is env", TSR__BOOT_ENV},
        {"single", "TESSERA_BOOT is single", TSR__BOOT_SINGLE},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(asked, names[i].name) == 0) {
            *kind = names[i].kind;
            *why = names[i].why;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID,
                     "boot: TESSERA_BOOT is '%.80s', not auto, pmix, env or single", asked);
}

/* Launchers that set a count of processes even where these cannot reach one another through PMIx.
 */
static tsr_status refuse_silent_copies(void)
{
    static const struct {
        const char *count, *advice;
    } launchers[] = {
        {"SLURM_STEP_NUM_TASKS", "start it with srun --mpi=pmix"},
        {"OMPI_COMM_WORLD_SIZE", "its mpirun has no PMIx"},
        {"PMI_SIZE", "its launcher speaks PMI, not PMIx"},
    };
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++) {
        int64_t count;
        TSR__TRY(tsr__boot_integer(launchers[i].count, 0, INT32_MAX, 1, &count));
        TSR__REQUIRE(count <= 1,
                     "boot: %s is %d but there is neither PMIX_NAMESPACE nor RANK, so these "
                     "processes cannot find one another: %s, or set TESSERA_BOOT=single",
                     launchers[i].count, (int)count, launchers[i].advice);
    }
    return TSR_OK;
}

tsr_status tsr__boot_choose(tsr__boot_kind *kind, const char **why)
{
    const char *asked = tsr__boot_variable("TESSERA_BOOT");
    if (asked != NULL && strcmp(asked, "auto") != 0)
        return as_asked(asked, kind, why);

    bool env = tsr__boot_variable("RANK") != NULL || tsr__boot_variable("WORLD_SIZE") != NULL;
    bool pmix =
        tsr__boot_variable("PMIX_NAMESPACE") != NULL && tsr__boot_variable("PMIX_RANK") != NULL;
    if (env && pmix && tsr__boot_variable("TORCHELASTIC_RUN_ID") != NULL) {
        /* srun torchrun …: what PMIx counts are the agents. */
        *kind = TSR__BOOT_ENV;
        *why = "RANK or WORLD_SIZE is set, by a torchrun that was itself started through PMIx";
    } else if (pmix) {
        *kind = TSR__BOOT_PMIX;
        *why = "PMIX_NAMESPACE and PMIX_RANK are set";
    } else if (env) {
        *kind = TSR__BOOT_ENV;
        *why = "RANK or WORLD_SIZE is set";
    } else {
        TSR__TRY(refuse_silent_copies());
        *kind = TSR__BOOT_SINGLE;
        *why = "there is neither PMIX_NAMESPACE nor RANK";
    }
    return TSR_OK;
}
