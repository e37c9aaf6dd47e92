/* Finds reasons why the results of a run may be wrong. */
#include <stdio.h>
#include <unistd.h>

#include "bench/report/report.h"

int bench_noisy_rows(const bench_context *context)
{
    int noisy = 0;
    for (int i = 0; i < context->row_count; i++) {
        bench_summary summary = bench_summarize(&context->rows[i]->host);
        noisy += bench_is_noisy(&summary);
    }
    return noisy;
}

static int rows_above(const bench_context *context)
{
    int count = 0;
    for (int i = 0; i < context->row_count; i++)
        count += bench_stands(context->rows[i]) == BENCH_ABOVE;
    return count;
}

int bench_warnings(const bench_context *context, char text[BENCH_WARNINGS][BENCH_WARNING_SIZE])
{
    int count = 0, noisy = bench_noisy_rows(context), above = rows_above(context);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (context->noise.other_cpus > BENCH_BUSY_SHARE * (double)cpus)
        snprintf(text[count++], BENCH_WARNING_SIZE,
                 "the machine was busy: other processes used %.1f of its %ld CPUs during the run",
                 context->noise.other_cpus, cpus);
    if (noisy > 1 && noisy > BENCH_NOISY_SHARE * context->row_count)
        snprintf(text[count++], BENCH_WARNING_SIZE,
                 "%d of %d results are noisy; small differences between them mean nothing", noisy,
                 context->row_count);
    if (above > 0)
        snprintf(text[count++], BENCH_WARNING_SIZE,
                 "%d of %d results are above their ceiling, which was therefore measured in a "
                 "slower moment",
                 above, context->row_count);
    if (context->peer_warning != NULL)
        snprintf(text[count++], BENCH_WARNING_SIZE, "%s", context->peer_warning);
    return count;
}
