/* How much of the machine others used during a run: times taken on a busy machine are not its own.
 */
#ifndef TSR_BENCH_HARNESS_NOISE_H
#define TSR_BENCH_HARNESS_NOISE_H

typedef struct bench_noise {
    double start_ns, start_busy, start_own; /* CPU seconds: of all processes, and of ours */
    double other_cpus;                      /* busy with others on average; below 0: not known */
    double load_average;                    /* of the minute before the run; below 0: not known */
} bench_noise;

void bench_noise_begin(bench_noise *noise);
void bench_noise_end(bench_noise *noise);

/* CPU seconds in a line "cpu  user nice system idle …" of /proc/stat, in ticks of 1/`per_second`:
 * all but idle and waiting. Below 0 when it is no such line. */
double bench_noise_busy(const char *line, double per_second);

#endif
