/* Numbers as people write and read them. */
#ifndef TSR_CLI_LIB_NUMBERS_H
#define TSR_CLI_LIB_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a decimal integer within low … high that takes up all of the text. */
bool cli_read_integer(const char *text, int64_t low, int64_t high, int64_t *out);
/* Reads a finite decimal number within low … high: "5", "-.5", "2.5e-1". */
bool cli_read_real(const char *text, double low, double high, double *out);
/* Reads a decimal number at the start of `text`. Returns its end; NULL if there is no number. A
 * number that is too large becomes infinite. */
const char *cli_read_decimal(const char *text, double *out);

#define CLI_BYTES_TEXT 32
/* "2 GiB", "1.5 GiB"; without decimals if the value is exact. Returns `text`. */
char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT]);

#define CLI_UTC_TEXT 40
/* Seconds since 1970 as "2026-01-02T03:04:05Z". Returns `text`. */
char *cli_utc(int64_t seconds, char text[CLI_UTC_TEXT]);

#define CLI_NUMBER_TEXT 32
/* Three significant digits, without an exponent. Returns `text`. */
char *cli_number(double value, char text[CLI_NUMBER_TEXT]);
/* "4.70 ms". Returns `text`. */
char *cli_duration(double ns, char text[CLI_NUMBER_TEXT]);
/* "72 %", "4.2 %". Returns `text`. */
char *cli_percent(double fraction, char text[CLI_NUMBER_TEXT]);

#endif
