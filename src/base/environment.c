#include "base/environment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *tsr__env_text(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

bool tsr__env_switch(const char *name)
{
    const char *text = tsr__env_text(name);
    return text != NULL && strcmp(text, "0") != 0;
}

/* Converts a decimal integer. The function checks that the text starts with a digit or a minus
 * sign, because strtoll would also accept leading spaces and a plus sign. */
static bool parse_integer(const char *text, int64_t *out)
{
    const char *digits = text + (text[0] == '-');
    if (digits[0] < '0' || digits[0] > '9')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *out = value;
    return true;
}

tsr_status tsr__env_integer(const char *what, const char *name, int64_t low, int64_t high,
                            int64_t fallback, int64_t *out)
{
    const char *text = tsr__env_text(name);
    int64_t value = fallback;
    if (text != NULL && (!parse_integer(text, &value) || value < low || value > high))
        return tsr__fail(TSR_ERR_INVALID,
                         "%s: %s is '%.80s', not an integer from %" PRId64 " to %" PRId64, what,
                         name, text, low, high);
    *out = value;
    return TSR_OK;
}

tsr_status tsr__env_needed_integer(const char *what, const char *name, int64_t low, int64_t high,
                                   int64_t *out)
{
    TSR__REQUIRE(tsr__env_text(name) != NULL, "%s: %s is not set", what, name);
    return tsr__env_integer(what, name, low, high, low, out);
}
