/* The comparison of the ranks' strings of --stop. The library compares everything else that decides
 * when a text ends. Ranks that ended their texts at different steps would wait for each other. */
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/memory.h"

/* Returns the strings of --stop one after the other, each with its terminating zero. */
static char *join(size_t *size)
{
    *size = 0;
    for (int i = 0; i < generate_chosen.stop_count; i++)
        *size += strlen(generate_chosen.stops[i]) + 1;
    char *all = cli_alloc(*size + 1, 1), *end = all;
    for (int i = 0; i < generate_chosen.stop_count; i++) {
        strcpy(end, generate_chosen.stops[i]);
        end += strlen(end) + 1;
    }
    return all;
}

/* Sets *differs to 1 if own[size] is not what rank 0 has, and to 0 otherwise. */
static tsr_status compare_with_first(tsr_comm *comm, const char *own, size_t size, int32_t *differs)
{
    int64_t first_size = (int64_t)size;
    tsr_status status = tsr_comm_broadcast(comm, &first_size, 1, TSR_I64, 0, NULL);
    if (status != TSR_OK)
        return status;
    char *first = cli_alloc((size_t)first_size + 1, 1);
    if (tsr_comm_rank(comm) == 0)
        memcpy(first, own, size);
    if (first_size > 0)
        status = tsr_comm_broadcast(comm, first, (uint64_t)first_size, TSR_U8, 0, NULL);
    *differs = (size_t)first_size != size || memcmp(first, own, size) != 0;
    free(first);
    return status;
}

tsr_status generate_check_stops(tsr_comm *comm, char *problem, size_t size)
{
    size_t own_size = 0;
    int32_t differs = 0, any = 0;
    char *own = join(&own_size);
    tsr_status status = compare_with_first(comm, own, own_size, &differs);
    free(own);
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(comm, &differs, &any, 1, TSR_I32, TSR_OP_MAX, NULL);
    if (status != TSR_OK || any == 0)
        return status;
    if (generate_chosen.stop_count == 0)
        snprintf(problem, size, "not all ranks have the same --stop; this one has none");
    else
        snprintf(problem, size,
                 "not all ranks have the same --stop; this one has %d, the first is '%.60s'",
                 generate_chosen.stop_count, generate_chosen.stops[0]);
    return TSR_ERR_INVALID;
}
