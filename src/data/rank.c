/* Which process this is, from what launchers put in its environment. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "tessera/sampler.h"

/* Empty is the same as not set. */
static const char *value_of(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The number in a variable, within its limits. strtoll would also take leading spaces and a plus
 * sign. */
static tsr_status read_number(const char *variable, int64_t least, int64_t most, int64_t *out)
{
    const char *text = value_of(variable);
    char *end = NULL;
    errno = 0;
    bool starts = text != NULL && (isdigit((unsigned char)text[0]) || text[0] == '-');
    long long value = starts ? strtoll(text, &end, 10) : 0;
    TSR__REQUIRE(starts && end != text && *end == '\0' && errno == 0,
                 "rank: %s is '%s', not a number", variable, text != NULL ? text : "");
    TSR__REQUIRE(value >= least && value <= most, "rank: %s is %lld, not %" PRId64 " to %" PRId64,
                 variable, value, least, most);
    *out = value;
    return TSR_OK;
}

tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks)
{
    static const struct launcher {
        const char *rank, *ranks, *other_ranks;
    } launchers[] = {
        {"RANK", "WORLD_SIZE", NULL},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
        {"PMI_RANK", "PMI_SIZE", NULL},
        {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
    };
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *name = launchers[i].ranks, *other = launchers[i].other_ranks;
        if (value_of(name) == NULL && other != NULL && value_of(other) != NULL)
            name = other;
        bool has_rank = value_of(launchers[i].rank) != NULL, has_ranks = value_of(name) != NULL;
        /* A job's own script has the number of tasks, but is none of them. */
        if (!has_rank && (!has_ranks || other != NULL))
            continue;
        TSR__REQUIRE(has_rank && has_ranks, "rank: %s is set, but %s is not",
                     has_rank ? launchers[i].rank : name, has_rank ? name : launchers[i].rank);
        int64_t found_ranks, found_rank;
        TSR__TRY(read_number(name, 1, INT32_MAX, &found_ranks));
        TSR__TRY(read_number(launchers[i].rank, 0, found_ranks - 1, &found_rank));
        *rank = found_rank;
        *ranks = found_ranks;
        return TSR_OK;
    }
    TSR__REQUIRE(value_of("PMIX_RANK") == NULL,
                 "rank: PMIX_RANK is set, but nothing says of how many");
    *rank = 0;
    *ranks = 1;
    return TSR_OK;
}
