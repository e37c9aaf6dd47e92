/* Values of the options of tessera plan that several kinds of plans share. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/say.h"
#include "cli/plan/plan.h"
#include "tessera/shard.h"

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

/* Options that exclude each other -------------------------------------------------------------- */

int plan_refuse(const char *what, const plan_given *all)
{
    for (; all->name; all++)
        if (all->given)
            return cli_usage_error("plan: %s does not take --%s", what, all->name);
    return CLI_DONE;
}

int plan_refuse_sharding(const char *what, const plan_options *o)
{
    const plan_given all[] = {{o->gather.count > 0, "gather"},
                              {o->partition != NULL, "partition"},
                              {o->align > 0, "align"},
                              {o->full.count > 0, "full-layers"},
                              {o->layerwise.count > 0, "layerwise-layers"},
                              {0}};
    return plan_refuse(what, all);
}

/* Ranks ---------------------------------------------------------------------------------------- */

static int read_rates(const plan_options *o, plan_ranks *out)
{
    size_t count = o->rates.count;
    out->rates = count > 0 ? cli_alloc(count, sizeof *out->rates) : NULL;
    for (size_t i = 0; i < count; i++)
        if (!plan_read_rate(o->rates.texts[i], &out->rates[i]))
            return cli_usage_error("plan: --rates takes numbers that are not negative, not '%s'",
                                   o->rates.texts[i]);
    return CLI_DONE;
}

static int read_memory(const plan_options *o, plan_ranks *out)
{
    size_t count = o->memory.count;
    out->memory = count > 0 ? cli_alloc((size_t)out->count, sizeof *out->memory) : NULL;
    for (size_t i = 0; i < count; i++)
        if (!cli_read_bytes(o->memory.texts[i], &out->memory[i]))
            return cli_usage_error(
                "plan: --memory takes bytes, up to 2^53 (8192T), such as 8G, 512M or 1.5TiB, "
                "not '%s'",
                o->memory.texts[i]);
    for (int r = 1; r < out->count && count == 1; r++)
        out->memory[r] = out->memory[0];
    return CLI_DONE;
}

/* Determines the number of ranks. All options that imply this number must agree. */
static int count_ranks(const plan_options *o, int *ranks)
{
    size_t count = (size_t)o->ranks, rates = o->rates.count, memory = o->memory.count;
    if (count == 0)
        count = rates > 0 ? rates : memory > 1 ? memory : 0;
    if (count == 0)
        return cli_usage_error("plan: missing --ranks N");
    if (count > TSR_SHARD_MAX_RANKS)
        return cli_usage_error("plan: %zu ranks are too many; the maximum is %d", count,
                               TSR_SHARD_MAX_RANKS);
    if (rates > 0 && rates != count)
        return cli_usage_error("plan: --rates has %zu value%s for %zu rank%s", rates,
                               CLI_PLURAL(rates), count, CLI_PLURAL(count));
    if (memory > 1 && memory != count)
        return cli_usage_error("plan: --memory has %zu value%s for %zu rank%s", memory,
                               CLI_PLURAL(memory), count, CLI_PLURAL(count));
    *ranks = (int)count;
    return CLI_DONE;
}

int plan_ranks_read(const plan_options *o, plan_ranks *out)
{
    *out = (plan_ranks){0};
    int code = count_ranks(o, &out->count);
    if (code == CLI_DONE)
        code = read_rates(o, out);
    if (code == CLI_DONE)
        code = read_memory(o, out);
    return code;
}

int plan_check_contexts(const plan_ranks *ranks, int contexts)
{
    return ranks->count % contexts == 0
               ? CLI_DONE
               : cli_usage_error("plan: --context-parallel %d does not divide %d rank%s", contexts,
                                 ranks->count, CLI_PLURAL(ranks->count));
}

void plan_ranks_free(plan_ranks *ranks)
{
    free(ranks->rates);
    free(ranks->memory);
    *ranks = (plan_ranks){0};
}
