/* getloadavg is BSD's. */
#define _DEFAULT_SOURCE

#include "bench/harness/noise.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bench/harness/clock.h"

double bench_noise_busy(const char *line, double per_second)
{
    double user, nice, system, idle, waiting, interrupts, soft, stolen;
    if (sscanf(line, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &waiting,
               &interrupts, &soft, &stolen) != 8)
        return -1;
    return (user + nice + system + interrupts + soft + stolen) / per_second;
}

static double read_busy(void)
{
    char line[256];
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL)
        return -1;
    double busy = fgets(line, sizeof line, file) != NULL
                      ? bench_noise_busy(line, (double)sysconf(_SC_CLK_TCK))
                      : -1;
    fclose(file);
    return busy;
}

static double seconds_of(int whom)
{
    struct rusage usage;
    if (getrusage(whom, &usage) != 0)
        return 0;
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

/* Ours, and that of the processes we started and waited for. */
static double own_seconds(void)
{
    return seconds_of(RUSAGE_SELF) + seconds_of(RUSAGE_CHILDREN);
}

void bench_noise_begin(bench_noise *noise)
{
    *noise = (bench_noise){.start_ns = bench_now_ns(),
                           .start_busy = read_busy(),
                           .start_own = own_seconds(),
                           .other_cpus = -1};
    if (getloadavg(&noise->load_average, 1) != 1)
        noise->load_average = -1;
}

void bench_noise_end(bench_noise *noise)
{
    double busy = read_busy(), seconds = (bench_now_ns() - noise->start_ns) / 1e9;
    /* The kernel counts in ticks: a short run says nothing. */
    if (busy < 0 || noise->start_busy < 0 || seconds < 0.5)
        return;
    double others = busy - noise->start_busy - (own_seconds() - noise->start_own);
    noise->other_cpus = others > 0 ? others / seconds : 0;
}
