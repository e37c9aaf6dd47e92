#include "bench/harness/host.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* From Linux' /proc, on processors that have the line. */
static void read_cpu_name(char *name, size_t size)
{
    static const char label[] = "model name";
    char line[256];
    snprintf(name, size, "?");
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
