/* Finds the rank of this process from the environment variables that launchers set. */
#include <stddef.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/launcher.h"
#include "tessera/sampler.h"

/* The names of the two environment variables in which a launcher stores the rank and the number of
 * ranks. */
typedef struct numbers {
    const char *rank, *ranks;
    /* true: the launcher also sets the variable whose name is in `rank`, to 0, for the job's batch
     * script, which is not a rank */
    bool tells_scripts;
} numbers;

/* Reads both numbers if the launcher has set the variables. Sets *found to whether it has. */
static tsr_status read_numbers(const numbers *from, bool *found, int64_t *rank, int64_t *ranks)
{
    bool has_rank = tsr__env_text(from->rank) != NULL,
         has_ranks = tsr__env_text(from->ranks) != NULL;
    *found = has_ranks || (has_rank && !from->tells_scripts);
    if (!*found)
        return TSR_OK;
    TSR__REQUIRE(has_rank && has_ranks, "rank: %s is set, but %s is not",
                 has_rank ? from->rank : from->ranks, has_rank ? from->ranks : from->rank);
    TSR__TRY(tsr__env_needed_integer("rank", from->ranks, 1, INT32_MAX, ranks));
    return tsr__env_needed_integer("rank", from->rank, 0, *ranks - 1, rank);
}

tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks)
{
    TSR__REQUIRE(rank != NULL && ranks != NULL, "rank: %s is NULL",
                 rank != NULL ? "ranks" : "rank");
    static const numbers variables = {.rank = "RANK", .ranks = "WORLD_SIZE"};
    static const numbers launchers[] = {
        {.rank = "OMPI_COMM_WORLD_RANK", .ranks = "OMPI_COMM_WORLD_SIZE"},
        {.rank = "PMI_RANK", .ranks = "PMI_SIZE"},
        {.rank = "SLURM_PROCID", .ranks = "SLURM_STEP_NUM_TASKS", .tells_scripts = true},
    };
    int64_t found_rank = 0, found_ranks = 1;
    tsr__launcher launcher;
    const char *why;
    TSR__TRY(tsr__launcher_find("rank", &launcher, &why));
    TSR__REQUIRE(
        launcher != TSR__LAUNCHER_JOIN,
        "rank: TESSERA_BOOT is join, so the rank is known only after joining: take it from "
        "the communicator");
    bool is_single = launcher == TSR__LAUNCHER_SINGLE, found = false;
    if (launcher == TSR__LAUNCHER_VARIABLES) {
        TSR__TRY(read_numbers(&variables, &found, &found_rank, &found_ranks));
        TSR__REQUIRE(found, "rank: %s, but RANK is not set", why);
    }
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !found && !is_single; i++)
        TSR__TRY(read_numbers(&launchers[i], &found, &found_rank, &found_ranks));
    TSR__REQUIRE(found || is_single || tsr__env_text("PMIX_RANK") == NULL,
                 "rank: PMIX_RANK is set, but no variable gives the number of ranks");
    *rank = found_rank;
    *ranks = found_ranks;
    return TSR_OK;
}
