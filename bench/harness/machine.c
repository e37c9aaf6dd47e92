/* <stdlib.h> declares getloadavg only with this macro. */
#define _DEFAULT_SOURCE

#include "bench/harness/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "bench/harness/clock.h"

/* Gets the processor's name by its instruction CPUID; "?" on processors without it. */
static void ask_cpu_name(char *name, size_t size)
{
    snprintf(name, size, "?");
#if defined(__x86_64__)
    unsigned text[12] = {0};
    bool told = true;
    for (unsigned i = 0; i < 3 && told; i++) {
        unsigned *part = &text[(size_t)4 * i];
        told = __get_cpuid(0x80000002 + i, &part[0], &part[1], &part[2], &part[3]) != 0;
    }
    if (told)
        snprintf(name, size, "%.*s", (int)sizeof text, (const char *)text);
#endif
}

/* Reads the CPU's name from Linux's /proc/cpuinfo, which has no line "model name" for some
 * processors. */
static void read_cpu_name(char *name, size_t size)
{
    static const char label[] = "model name";
    char line[256];
    ask_cpu_name(name, size);
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, label, sizeof label - 1) != 0 || value == NULL)
            continue;
        value += strspn(value, ": \t");
        snprintf(name, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    fclose(file);
}

void bench_host_read(bench_host *host)
{
    struct utsname system;
    struct tm parts;
    time_t now = time(NULL);
    read_cpu_name(host->cpu, sizeof host->cpu);
    host->cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(host->os, sizeof host->os, "?");
    if (uname(&system) >= 0)
        snprintf(host->os, sizeof host->os, "%.80s %.80s %.80s", system.sysname, system.release,
                 system.machine);
    host->time[0] = '\0';
    if (gmtime_r(&now, &parts) != NULL)
        strftime(host->time, sizeof host->time, "%Y-%m-%dT%H:%M:%SZ", &parts);
}

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
    const long per_second = sysconf(_SC_CLK_TCK);
    double busy = per_second > 0 && fgets(line, sizeof line, file) != NULL
                      ? bench_noise_busy(line, (double)per_second)
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

/* Returns the CPU seconds of this process and of its children that have ended. */
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
    /* The system counts CPU time in ticks, which are too coarse for runs of less than half a
     * second. */
    if (busy < 0 || noise->start_busy < 0 || seconds < 0.5)
        return;
    double others = busy - noise->start_busy - (own_seconds() - noise->start_own);
    noise->other_cpus = others > 0 ? others / seconds : 0;
}
