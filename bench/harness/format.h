/* Numbers as people read them. */
#ifndef TSR_BENCH_HARNESS_FORMAT_H
#define TSR_BENCH_HARNESS_FORMAT_H

#include <stddef.h>

#define BENCH_NUMBER 32

/* Three significant digits, and no exponent. */
char *bench_number(double value, char text[BENCH_NUMBER]);
/* "4.70 ms" */
char *bench_duration(double ns, char text[BENCH_NUMBER]);
/* "72 %", "4.2 %" */
char *bench_percent(double fraction, char text[BENCH_NUMBER]);

#endif
