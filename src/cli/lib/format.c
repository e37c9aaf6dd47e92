#include "cli/lib/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

char *cli_bytes(uint64_t bytes, char text[CLI_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t scale = 1;
    while (unit + 1 < sizeof units / sizeof units[0] && bytes / scale >= 1024) {
        scale *= 1024;
        unit++;
    }
    if (bytes % scale == 0)
        snprintf(text, CLI_BYTES_TEXT, "%" PRIu64 " %s", bytes / scale, units[unit]);
    else
        snprintf(text, CLI_BYTES_TEXT, "%.1f %s", (double)bytes / (double)scale, units[unit]);
    return text;
}

char *cli_utc(int64_t seconds, char text[CLI_UTC_TEXT])
{
    time_t time = (time_t)seconds;
    struct tm parts;
    if (gmtime_r(&time, &parts) == NULL ||
        strftime(text, CLI_UTC_TEXT, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        snprintf(text, CLI_UTC_TEXT, "?");
    return text;
}
