/* Lists of layers, such as 0-3,7. */
#include <stdlib.h>

#include "base/error.h"
#include "model/stack/stack.h"

/* Reads the next number or range of `text`, and moves past it. Returns false if there is none. */
static bool read_range(const char **text, int layers, int *first, int *last)
{
    char *end;
    if (**text < '0' || **text > '9')
        return false;
    const long from = strtol(*text, &end, 10);
    long to = from;
    if (*end == '-' && end[1] >= '0' && end[1] <= '9')
        to = strtol(end + 1, &end, 10);
    if (from > to || to >= layers || (*end != ',' && *end != '\0') || (*end == ',' && !end[1]))
        return false;
    *first = (int)from;
    *last = (int)to;
    *text = *end == ',' ? end + 1 : end;
    return true;
}

tsr_status tsr__stack_choose(const char *who, const char *list, int layers, bool *chosen)
{
    int first = 0, last = layers - 1;
    const char *rest = list ? list : "";
    for (bool more = true; more; more = *rest != '\0') {
        TSR__REQUIRE(
            !list || read_range(&rest, layers, &first, &last),
            "%s is '%s'; numbers from 0 to %d and ranges of them, such as 0-3,7, are needed", who,
            list, layers - 1);
        for (int i = first; i <= last; i++)
            chosen[i] = true;
    }
    return TSR_OK;
}
