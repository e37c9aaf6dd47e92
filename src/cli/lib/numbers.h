/* Numbers in the forms that people write and read. */
#ifndef TSR_CLI_LIB_NUMBERS_H
#define TSR_CLI_LIB_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a decimal integer from low to high. The text must not contain anything else. */
bool cli_read_integer(const char *text, int64_t low, int64_t high, int64_t *out);
/* Reads a finite decimal number from low to high, such as "5", "-.5" or "2.5e-1". The text must not
 * contain anything else. */
bool cli_read_real(const char *text, double low, double high, double *out);
/* Reads a decimal number at the start of `text`. Returns where the number ends, or NULL if there is
 * none. A number that is too large for a double becomes infinity. */
const char *cli_read_decimal(const char *text, double *out);

/* Reads a number of bytes such as "1000", "1.5G" or "1.5GiB". K, M, G and T are powers of 1024.
 * Returns false for any other text, for more than 2^53 bytes, and for a fraction of a byte. */
bool cli_read_bytes(const char *text, uint64_t *out);

#define CLI_BYTES_TEXT 32
/* Formats a size such as "2 GiB" or "1.5 GiB". There are no decimals if the value is exact. Returns
 * `text`. */
char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT]);

/* The ending of a noun after this number: "" for 1, otherwise "s". */
#define CLI_PLURAL(count) ((count) == 1 ? "" : "s")

#define CLI_UTC_TEXT 40
/* Formats a time, given in seconds since 1970, as in "2026-01-02T03:04:05Z". Returns `text`. */
char *cli_utc(int64_t seconds, char text[CLI_UTC_TEXT]);

#define CLI_NUMBER_TEXT 32
/* Formats a number with three significant digits and without an exponent. Returns `text`. */
char *cli_number(double value, char text[CLI_NUMBER_TEXT]);
/* Formats a duration as in "4.70 ms". Returns `text`. */
char *cli_duration(double ns, char text[CLI_NUMBER_TEXT]);
/* Formats a fraction as in "72 %" or "4.2 %". Returns `text`. */
char *cli_percent(double fraction, char text[CLI_NUMBER_TEXT]);

#endif
