/* The division of experts over teams of ranks, such as those of a host: teams have whole experts,
 * and the ranks of a team divide the hidden features of these. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "parallel/internal.h"
#include "parallel/layers/layer.h"

/* Scratch memory, [ranks] each: rates and ranges of teams or of a team's ranks, and their numbers.
 */
typedef struct scratch {
    double *rates;
    tsr_shard_range *ranges;
    int *members;
} scratch;

static double rate_of(const tsr_partition_params *params, int rank)
{
    return params->kind == TSR_PARTITION_WEIGHTED && params->rates ? params->rates[rank] : 1;
}

/* Divides by s->rates, or evenly if all are 0. */
static tsr_status divide(int64_t total, int count, uint64_t align, const scratch *s)
{
    tsr_partition_params by_rates = {.struct_size = sizeof by_rates,
                                     .kind = TSR_PARTITION_UNEVEN,
                                     .align = align,
                                     .rates = s->rates};
    for (int i = 0; i < count; i++)
        if (s->rates[i] > 0)
            by_rates.kind = TSR_PARTITION_WEIGHTED;
    if (by_rates.kind == TSR_PARTITION_UNEVEN)
        by_rates.rates = NULL;
    return tsr_partition((uint64_t)total, count, &by_rates, s->ranges);
}

static tsr_status divide_over_teams(int ranks, const int *teams, const tsr_partition_params *params,
                                    int64_t experts, const scratch *s, tsr_shard_range *out)
{
    memset(s->rates, 0, (size_t)ranks * sizeof *s->rates);
    for (int r = 0; r < ranks; r++) {
        TSR__REQUIRE(teams[r] >= 0 && teams[r] < ranks,
                     "rank %d is in team %d; 0 to %d are possible", r, teams[r], ranks - 1);
        s->rates[teams[r]] += rate_of(params, r);
    }
    TSR__TRY(divide(experts, ranks, 1, s));
    for (int r = 0; r < ranks; r++)
        out[r] = s->ranges[teams[r]];
    return TSR_OK;
}

static tsr_status divide_in_team(int ranks, const int *teams, int team,
                                 const tsr_partition_params *params, int64_t hidden, uint64_t align,
                                 const scratch *s, tsr_shard_range *out)
{
    int count = 0;
    for (int r = 0; r < ranks; r++)
        if (teams[r] == team) {
            s->members[count] = r;
            s->rates[count++] = rate_of(params, r);
        }
    if (count == 0)
        return TSR_OK;
    TSR__TRY(divide(hidden, count, align, s));
    for (int i = 0; i < count; i++)
        out[s->members[i]] = s->ranges[i];
    return TSR_OK;
}

static tsr_status divide_both(int ranks, const int *teams, const tsr_partition_params *params,
                              int64_t experts, int64_t hidden, const scratch *s,
                              tsr_shard_range *experts_out, tsr_shard_range *hidden_out)
{
    TSR__TRY(divide_over_teams(ranks, teams, params, experts, s, experts_out));
    for (int team = 0; team < ranks; team++)
        TSR__TRY(divide_in_team(ranks, teams, team, params, hidden, params->align, s, hidden_out));
    return TSR_OK;
}

tsr_status tsr__teams_divide(int ranks, const int *teams, const tsr_partition_params *params,
                             int64_t experts, int64_t hidden, tsr_shard_range *experts_out,
                             tsr_shard_range *hidden_out)
{
    const size_t count = (size_t)ranks;
    const scratch s = {.rates = tsr__calloc(count, sizeof *s.rates),
                       .ranges = tsr__calloc(count, sizeof *s.ranges),
                       .members = tsr__calloc(count, sizeof *s.members)};
    const tsr_status status =
        s.rates && s.ranges && s.members
            ? divide_both(ranks, teams, params, experts, hidden, &s, experts_out, hidden_out)
            : TSR_ERR_NO_MEMORY;
    tsr__free(s.rates);
    tsr__free(s.ranges);
    tsr__free(s.members);
    return status;
}

int tsr__teams_largest(int ranks, const int *teams)
{
    int largest = 0;
    for (int team = 0; team < ranks; team++) {
        int count = 0;
        for (int r = 0; r < ranks; r++)
            count += (teams ? teams[r] : 0) == team;
        largest = count > largest ? count : largest;
    }
    return largest;
}

bool tsr__parameter_in_team(const tsr_parameter *parameter, int64_t *first, int64_t *count)
{
    /* `seen` is the first member. */
    const tsr__layer_parameter *own = (const tsr__layer_parameter *)(const void *)parameter;
    if (own->in_team) {
        *first = own->team_first;
        *count = own->team_count;
    }
    return own->in_team;
}
