/* Numbers as people read them. */
#ifndef TSR_CLI_LIB_FORMAT_H
#define TSR_CLI_LIB_FORMAT_H

#include <stdint.h>

#define CLI_BYTES_TEXT 32
/* "2 GiB", "1.5 GiB"; without decimals if the value is exact. Returns `text`. */
char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT]);

#define CLI_UTC_TEXT 40
/* Seconds since 1970 as "2026-01-02T03:04:05Z". Returns `text`. */
char *cli_utc(int64_t seconds, char text[CLI_UTC_TEXT]);

#endif
