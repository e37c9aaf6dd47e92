/* How unequal the work of ranks is that have whole experts: tokens choose experts as if by chance,
 * so that the experts of one rank, or of one host, may have more tokens than their part of all. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "model/weights/expert_load.h"

/* With more chosen experts or more groups than this, groups count with their part of all. */
#define MOST_CHOSEN INT64_C(64)
#define MOST_GROUPS 64

/* Returns the number of ways to choose k of n. */
static double choices(int64_t n, int k)
{
    double ways = 1;
    for (int i = 0; i < k; i++)
        ways = ways * (double)(n - i) / (i + 1);
    return ways;
}

/* Returns the part of all choices of `chosen` experts with which every group's work is below
 * `limit`. ways[2 · (MOST_CHOSEN + 1)] is scratch memory. */
static double part_below(int groups, const tsr__expert_group *group, int chosen, int64_t count,
                         double limit, double *ways)
{
    double *here = ways, *next = ways + MOST_CHOSEN + 1;
    memset(ways, 0, (size_t)(2 * (MOST_CHOSEN + 1)) * sizeof *ways);
    here[0] = 1;
    for (int g = 0; g < groups; g++) {
        double *swap = here;
        memset(next, 0, (size_t)(MOST_CHOSEN + 1) * sizeof *next);
        for (int n = 0; n <= chosen && n <= group[g].experts && n * group[g].work < limit; n++) {
            const double of_group = choices(group[g].experts, n);
            for (int k = 0; k + n <= chosen; k++)
                next[k + n] += here[k] * of_group;
        }
        here = next;
        next = swap;
    }
    return here[chosen] / choices(count, chosen);
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Lists the values, in ascending order and without repetitions, that the work of a group can have.
 * Returns their number. */
static size_t list_values(int groups, const tsr__expert_group *group, int chosen, double *values)
{
    size_t count = 0, different = 0;
    for (int g = 0; g < groups; g++)
        for (int n = 1; n <= chosen && n <= group[g].experts; n++)
            values[count++] = n * group[g].work;
    qsort(values, count, sizeof *values, ascending);
    for (size_t i = 0; i < count; i++)
        if (different == 0 || values[i] > values[different - 1] * (1 + 1e-9))
            values[different++] = values[i];
    return different;
}

tsr_status tsr__expert_load(int groups, const tsr__expert_group *group, int64_t chosen,
                            double *slowest, double *by_average)
{
    int64_t count = 0;
    *by_average = 0;
    for (int g = 0; g < groups; g++)
        count += group[g].experts;
    for (int g = 0; g < groups; g++)
        *by_average = fmax(*by_average, (double)chosen * (double)group[g].experts / (double)count *
                                            group[g].work);
    *slowest = *by_average;
    if (chosen > MOST_CHOSEN || groups > MOST_GROUPS || chosen >= count)
        return TSR_OK;
    const size_t most = (size_t)groups * (size_t)chosen;
    double *values = tsr__calloc(most + (size_t)(2 * (MOST_CHOSEN + 1)), sizeof *values);
    if (!values)
        return TSR_ERR_NO_MEMORY;
    const size_t different = list_values(groups, group, (int)chosen, values);
    double before = 0, sum = 0; /* of value · probability that the slowest group reaches it */
    for (size_t i = 0; i < different; i++) {
        const double below =
            part_below(groups, group, (int)chosen, count, values[i], values + most);
        sum += (values[i] - before) * (1 - below);
        before = values[i];
    }
    *slowest = fmax(sum, *by_average);
    tsr__free(values);
    return TSR_OK;
}
