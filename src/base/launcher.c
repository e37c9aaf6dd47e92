#include "base/launcher.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/environment.h"
#include "base/error.h"

static tsr_status as_asked(const char *what, const char *asked, tsr__launcher *out,
                           const char **why)
{
    static const struct {
        const char *name, *why;
        tsr__launcher launcher;
    } names[] = {
        {"pmix", "TESSERA_BOOT is pmix", TSR__LAUNCHER_PMIX},
        {"env", "TESSERA_BOOT is env", TSR__LAUNCHER_VARIABLES},
        {"single", "TESSERA_BOOT is single", TSR__LAUNCHER_SINGLE},
        {"join", "TESSERA_BOOT is join", TSR__LAUNCHER_JOIN},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(asked, names[i].name) == 0) {
            *out = names[i].launcher;
            *why = names[i].why;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: TESSERA_BOOT is '%.80s', not auto, pmix, env, join or single", what,
                     asked);
}

tsr_status tsr__launcher_find(const char *what, tsr__launcher *out, const char **why)
{
    const char *asked = tsr__env_text("TESSERA_BOOT");
    if (asked != NULL && strcmp(asked, "auto") != 0)
        return as_asked(what, asked, out, why);

    bool rank = tsr__env_text("RANK") != NULL, size = tsr__env_text("WORLD_SIZE") != NULL;
    bool variables = rank || size;
    bool pmix = tsr__env_text("PMIX_NAMESPACE") != NULL && tsr__env_text("PMIX_RANK") != NULL;
    if (variables && pmix && tsr__env_text("TORCHELASTIC_RUN_ID") != NULL) {
        /* With `srun torchrun …`, the PMIx ranks are the torchrun processes themselves, not the
         * workers that they start. Therefore use torchrun's variables. */
        *out = TSR__LAUNCHER_VARIABLES;
        *why = "RANK and WORLD_SIZE are set, by a torchrun that was itself started through PMIx";
    } else if (pmix) {
        *out = TSR__LAUNCHER_PMIX;
        *why = "PMIX_NAMESPACE and PMIX_RANK are set";
    } else if (variables) {
        TSR__REQUIRE(rank && size,
                     "%s: %s is set, but %s is not: set both, or neither for a single process",
                     what, rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
        *out = TSR__LAUNCHER_VARIABLES;
        *why = "RANK and WORLD_SIZE are set";
    } else {
        *out = TSR__LAUNCHER_NONE;
        *why = "there is neither PMIX_NAMESPACE nor RANK";
    }
    return TSR_OK;
}
