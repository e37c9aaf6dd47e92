/* Describes the machine of a run, and how much other processes used it during the run. */
#ifndef TSR_BENCH_HARNESS_MACHINE_H
#define TSR_BENCH_HARNESS_MACHINE_H

typedef struct bench_host {
    char cpu[128]; /* "?" if the system does not say */
    int cpus;      /* CPUs that are online */
    char os[256];  /* system, release and architecture */
    char time[32]; /* the time of the call, ISO 8601 in UTC */
} bench_host;

void bench_host_read(bench_host *host);

/* The load of the machine during a run. Times that are measured on a busy machine are too long. */
typedef struct bench_noise {
    double start_ns, start_busy, start_own; /* at the start: the host's clock, and the CPU seconds
                                               used by all processes and by this one */
    double other_cpus;   /* mean number of CPUs that other processes used; negative: unknown */
    double load_average; /* over the minute before the run; negative: unknown */
} bench_noise;

void bench_noise_begin(bench_noise *noise);
void bench_noise_end(bench_noise *noise);

/* Parses a line "cpu user nice system idle …" of /proc/stat, in ticks of 1/`per_second`. Returns
 * the CPU seconds that were neither idle nor spent waiting for disks; negative if it is not such a
 * line. */
double bench_noise_busy(const char *line, double per_second);

#endif
