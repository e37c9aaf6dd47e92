/* The machine that a run was made on. */
#ifndef TSR_BENCH_HARNESS_HOST_H
#define TSR_BENCH_HARNESS_HOST_H

typedef struct bench_host {
    char cpu[128]; /* "?" where the system does not say */
    int cpus;      /* that are online */
    char os[256];  /* system, release and architecture */
    char time[32]; /* now, ISO 8601 in UTC */
} bench_host;

void bench_host_read(bench_host *host);

#endif
