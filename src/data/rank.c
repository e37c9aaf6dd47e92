/* Which process this is, from what launchers put in its environment. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

typedef struct launcher {
    const char *rank, *ranks;
    bool tells_scripts; /* a job's own script has a rank too, 0, but is none of the ranks */
} launcher;

/* Both numbers of a launcher that has set either; *found says whether it has. */
static tsr_status read_launcher(const launcher *from, bool *found, int64_t *rank, int64_t *ranks)
{
    bool has_rank = value_of(from->rank) != NULL, has_ranks = value_of(from->ranks) != NULL;
    *found = has_ranks || (has_rank && !from->tells_scripts);
    if (!*found)
        return TSR_OK;
    TSR__REQUIRE(has_rank && has_ranks, "rank: %s is set, but %s is not",
                 has_rank ? from->rank : from->ranks, has_rank ? from->ranks : from->rank);
    TSR__TRY(read_number(from->ranks, 1, INT32_MAX, ranks));
    return read_number(from->rank, 0, *ranks - 1, rank);
}

/* What a communicator will go by (comm/boot/choose.c), so that both have the same rank. */
static tsr_status read_choice(bool *single, bool *variables, bool *pmix)
{
    const char *asked = value_of("TESSERA_BOOT");
    bool automatic = asked == NULL || strcmp(asked, "auto") == 0;
    *single = !automatic && strcmp(asked, "single") == 0;
    *variables = !automatic && strcmp(asked, "env") == 0;
    *pmix = !automatic && strcmp(asked, "pmix") == 0;
    TSR__REQUIRE(automatic || *single || *variables || *pmix,
                 "rank: TESSERA_BOOT is '%.80s', not auto, pmix, env or single", asked);
    if (automatic)
        *pmix = value_of("PMIX_NAMESPACE") != NULL && value_of("PMIX_RANK") != NULL &&
                value_of("TORCHELASTIC_RUN_ID") == NULL;
    return TSR_OK;
}

tsr_status tsr_rank_from_environment(int64_t *rank, int64_t *ranks)
{
    TSR__REQUIRE(rank != NULL && ranks != NULL, "rank: %s is NULL",
                 rank != NULL ? "ranks" : "rank");
    static const launcher variables = {.rank = "RANK", .ranks = "WORLD_SIZE"};
    static const launcher launchers[] = {
        {.rank = "OMPI_COMM_WORLD_RANK", .ranks = "OMPI_COMM_WORLD_SIZE"},
        {.rank = "PMI_RANK", .ranks = "PMI_SIZE"},
        {.rank = "SLURM_PROCID", .ranks = "SLURM_STEP_NUM_TASKS", .tells_scripts = true},
    };
    bool is_single, by_variables, by_pmix, found = false;
    int64_t found_rank = 0, found_ranks = 1;
    TSR__TRY(read_choice(&is_single, &by_variables, &by_pmix));
    if (!is_single && !by_pmix)
        TSR__TRY(read_launcher(&variables, &found, &found_rank, &found_ranks));
    TSR__REQUIRE(found || !by_variables, "rank: TESSERA_BOOT is env, but RANK is not set");
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !found && !is_single; i++)
        TSR__TRY(read_launcher(&launchers[i], &found, &found_rank, &found_ranks));
    TSR__REQUIRE(found || is_single || value_of("PMIX_RANK") == NULL,
                 "rank: PMIX_RANK is set, but nothing says of how many");
    *rank = found_rank;
    *ranks = found_ranks;
    return TSR_OK;
}
