/* tessera bench compare: what became slower between two runs. */
#ifndef TSR_BENCH_COMPARE_H
#define TSR_BENCH_COMPARE_H

/* argv[0] is "compare". Returns an exit code: BENCH_SLOWER when something did. */
int bench_compare_run(int argc, char **argv);

/* As docs/tessera.1 promises. */
#define BENCH_SLOWER 3

#endif
