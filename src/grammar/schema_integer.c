/* Integers of a range, as alternatives by their digits. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "grammar/schema_gbnf.h"

static tsr_status put_digit(tsr__schema_writer *w, char low, char high)
{
    return low == high ? tsr__schema_put(w, "\"%c\" ", low)
                       : tsr__schema_put(w, "[%c-%c] ", low, high);
}

/* Any `count` digits. */
static tsr_status put_digits(tsr__schema_writer *w, size_t count)
{
    return count > 0 ? tsr__schema_put(w, "[0-9]{%zu} ", count) : TSR_OK;
}

/* The numbers of as many digits as `low` that are at least `low`, or at most that if `least` is
 * false. */
static tsr_status put_bound(tsr__schema_writer *w, const char *digits, bool least)
{
    const size_t count = strlen(digits);
    if (count == 0)
        return TSR_OK;
    TSR__TRY(tsr__schema_put(w, "("));
    for (size_t i = 0; i < count; i++) {
        const char edge = digits[i];
        if (least ? edge < '9' : edge > '0') {
            for (size_t k = 0; k < i; k++)
                TSR__TRY(put_digit(w, digits[k], digits[k]));
            TSR__TRY(least ? put_digit(w, (char)(edge + 1), '9')
                           : put_digit(w, '0', (char)(edge - 1)));
            TSR__TRY(put_digits(w, count - i - 1));
            TSR__TRY(tsr__schema_put(w, "| "));
        }
    }
    TSR__TRY(tsr__schema_put_literal(w, digits, count));
    return tsr__schema_put(w, ") ");
}

/* The numbers from `low` to `high`, which have as many digits. */
static tsr_status put_same_length(tsr__schema_writer *w, const char *low, const char *high)
{
    size_t same = 0;
    while (low[same] != '\0' && low[same] == high[same])
        same++;
    if (same > 0)
        TSR__TRY(tsr__schema_put_literal(w, low, same));
    TSR__TRY(tsr__schema_put(w, " "));
    if (low[same] == '\0')
        return TSR_OK;
    TSR__TRY(tsr__schema_put(w, "("));
    TSR__TRY(put_digit(w, low[same], low[same]));
    TSR__TRY(put_bound(w, low + same + 1, true));
    if (high[same] - low[same] > 1) {
        TSR__TRY(tsr__schema_put(w, "| "));
        TSR__TRY(put_digit(w, (char)(low[same] + 1), (char)(high[same] - 1)));
        TSR__TRY(put_digits(w, strlen(low + same + 1)));
    }
    TSR__TRY(tsr__schema_put(w, "| "));
    TSR__TRY(put_digit(w, high[same], high[same]));
    TSR__TRY(put_bound(w, high + same + 1, false));
    return tsr__schema_put(w, ") ");
}

static tsr_status put_positive(tsr__schema_writer *w, uint64_t low, uint64_t high)
{
    TSR__TRY(tsr__schema_put(w, "("));
    for (;;) {
        char first[24], last[24];
        snprintf(first, sizeof first, "%" PRIu64, low);
        snprintf(last, sizeof last, "%" PRIu64, high);
        const bool longer = strlen(last) > strlen(first);
        if (longer) /* the largest number of as many digits as `low` */
            snprintf(last, sizeof last, "%.*s", (int)strlen(first), "9999999999999999999999");
        TSR__TRY(put_same_length(w, first, last));
        if (!longer)
            return tsr__schema_put(w, ") ");
        TSR__TRY(tsr__schema_put(w, "| "));
        low = 1;
        for (size_t i = 0; i < strlen(first); i++)
            low *= 10;
    }
}

tsr_status tsr__schema_put_integers(tsr__schema_writer *w, int64_t low, int64_t high)
{
    TSR__TRY(tsr__schema_put(w, "("));
    if (low < 0) {
        TSR__TRY(tsr__schema_put(w, "\"-\" "));
        TSR__TRY(put_positive(w, high < 0 ? -(uint64_t)high : 1, -(uint64_t)low));
        if (high >= 0)
            TSR__TRY(tsr__schema_put(w, "| "));
    }
    if (high >= 0)
        TSR__TRY(put_positive(w, low > 0 ? (uint64_t)low : 0, (uint64_t)high));
    return tsr__schema_put(w, ") ");
}
