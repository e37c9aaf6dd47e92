#include "cli/lib/numbers.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Reading -------------------------------------------------------------------------------------- */

bool cli_read_integer(const char *text, int64_t low, int64_t high, int64_t *out)
{
    /* strtoll also accepts leading spaces and a plus sign, which are errors here. */
    if (!isdigit((unsigned char)text[0]) && text[0] != '-')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < low || value > high)
        return false;
    *out = value;
    return true;
}

const char *cli_read_decimal(const char *text, double *out)
{
    /* strtod also accepts spaces, a plus sign, hexadecimal digits and "inf", which are errors
     * here. */
    const char *digits = text + (text[0] == '-');
    size_t length = strspn(digits, "0123456789.");
    if (length == 0)
        return NULL;
    char *end;
    double value = strtod(text, &end);
    bool exponent = end > digits + length && (digits[length] == 'e' || digits[length] == 'E');
    if (end != digits + length && !exponent)
        return NULL;
    *out = value;
    return end;
}

bool cli_read_real(const char *text, double low, double high, double *out)
{
    double value = 0;
    const char *end = cli_read_decimal(text, &value);
    if (end == NULL || *end != '\0' || !isfinite(value) || value < low || value > high)
        return false;
    *out = value;
    return true;
}

bool cli_read_bytes(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    double value = 0, scale = 1;
    const char *end = isdigit((unsigned char)text[0]) ? cli_read_decimal(text, &value) : NULL;
    if (end == NULL)
        return false;
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        scale = (double)(UINT64_C(1) << 10 * (unit - units + 1));
        end++;
        if (strcmp(end, "iB") == 0)
            end += 2;
    }
    /* A double represents each number of bytes up to 2^53 exactly. */
    if (*end != '\0' || !(value * scale <= 0x1p53))
        return false;
    const uint64_t bytes = (uint64_t)(value * scale);
    /* Less than one byte must not be rounded to 0, because 0 means "no limit". */
    if (bytes == 0 && strpbrk(text, "123456789") != NULL)
        return false;
    *out = bytes;
    return true;
}

/* Writing -------------------------------------------------------------------------------------- */

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

char *cli_number(double value, char text[CLI_NUMBER_TEXT])
{
    int decimals = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
    for (double limit = 0.1; value > 0 && value < limit && decimals < 6; limit /= 10)
        decimals++;
    /* The value may come from a file, so it may have any size. */
    snprintf(text, CLI_NUMBER_TEXT, value < 1e15 ? "%.*f" : "%.*g", value < 1e15 ? decimals : 3,
             value);
    return text;
}

char *cli_duration(double ns, char text[CLI_NUMBER_TEXT])
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    size_t unit = 0;
    char digits[CLI_NUMBER_TEXT];
    while (unit < 3 && ns >= 1000) {
        ns /= 1000;
        unit++;
    }
    snprintf(text, CLI_NUMBER_TEXT, "%.24s %s", cli_number(ns, digits), units[unit]);
    return text;
}

char *cli_percent(double fraction, char text[CLI_NUMBER_TEXT])
{
    double percent = 100 * fraction;
    snprintf(text, CLI_NUMBER_TEXT, percent < 9.95 ? "%.1f %%" : "%.0f %%",
             percent < 1e12 ? percent : 1e12);
    return text;
}
