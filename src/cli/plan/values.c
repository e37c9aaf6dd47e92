/* Values of the options of tessera plan. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/plan/plan.h"

bool plan_list_add(plan_list *list, const char *text)
{
    for (const char *rest = text;; rest++) {
        size_t length = strcspn(rest, ",");
        if (length == 0)
            return false;
        char *copy = cli_alloc(length + 1, 1);
        memcpy(copy, rest, length);
        list->texts = cli_resize(list->texts, list->count + 2, sizeof *list->texts);
        list->texts[list->count++] = copy;
        list->texts[list->count] = NULL;
        rest += length;
        if (*rest == '\0')
            return true;
    }
}

void plan_list_free(plan_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->texts[i]);
    free(list->texts);
    *list = (plan_list){0};
}

/* Reads a size or a rate, which must not have a sign. */
static const char *read_number(const char *text, double *out)
{
    return isdigit((unsigned char)text[0]) ? cli_read_decimal(text, out) : NULL;
}

bool plan_read_rate(const char *text, double *out)
{
    double value = 0;
    const char *end = read_number(text, &value);
    if (end == NULL || *end != '\0' || !isfinite(value))
        return false;
    *out = value;
    return true;
}
