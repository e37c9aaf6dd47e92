/* Plans as JSON: writing. Names have neither control characters nor bytes that are no UTF-8, so
 * that only quotes and backslashes need care. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "shard/plan/plan.h"

/* With `text` NULL only the length is found. */
typedef struct writer {
    char *text;
    size_t length;
} writer;

static void put(writer *to, const char *text, size_t length)
{
    if (to->text != NULL)
        memcpy(to->text + to->length, text, length);
    to->length += length;
}

static void print(writer *to, const char *format, ...) TSR__PRINTF(2, 3);
static void print(writer *to, const char *format, ...)
{
    char line[192];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    put(to, line, (size_t)length);
}

static void print_text(writer *to, const char *text)
{
    put(to, "\"", 1);
    for (size_t plain; *text != '\0'; text += plain) {
        if (*text == '"' || *text == '\\')
            put(to, "\\", 1);
        plain = 1 + strcspn(text + 1, "\"\\");
        put(to, text, plain);
    }
    put(to, "\"", 1);
}

/* A number beyond 63 bits as a string, for readers that have no more. */
static void print_u64(writer *to, uint64_t value)
{
    const char *quote = value > INT64_MAX ? "\"" : "";
    print(to, "%s%" PRIu64 "%s", quote, value, quote);
}

/* With as few digits as give the same number again, and a point whatever the locale. */
static void print_real(writer *to, double value)
{
    char text[64];
    int length = 0;
    if (!isfinite(value)) {
        print(to, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        length = snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    for (int i = 0; i < length; i++) {
        bool usual = strchr("0123456789e+-", text[i]) != NULL;
        bool point = !usual && (i == 0 || strchr("0123456789", text[i - 1]) != NULL);
        if (usual || point)
            put(to, usual ? &text[i] : ".", 1);
    }
}

static void print_head(writer *to, const tsr_shard_plan *plan)
{
    print(to, "{\"schema\": \"tessera.plan\", \"schema_version\": 1, \"tessera\": \"%s\",\n",
          tsr_version());
    print(to, " \"strategy\": ");
    print_text(to, plan->strategy);
    print(to, ", \"ranks\": %d", plan->ranks);
    for (int r = 0; r < plan->ranks && plan->rates != NULL; r++) {
        print(to, r == 0 ? ",\n \"rates\": [" : ", ");
        print_real(to, plan->rates[r]);
    }
    print(to, plan->rates != NULL ? "]" : "");
    for (int r = 0; r < plan->ranks && plan->memory_bytes != NULL; r++) {
        print(to, r == 0 ? ",\n \"memory_bytes\": [" : ", ");
        print_u64(to, plan->memory_bytes[r]);
    }
    print(to, plan->memory_bytes != NULL ? "],\n" : ",\n");
}

static void print_summary(writer *to, const tsr_shard_plan *plan)
{
    tsr_shard_summary summary;
    tsr_shard_plan_summary(plan, &summary);
    print(to,
          " \"summary\": {\"model_bytes\": %" PRIu64 ", \"sharded_bytes\": %" PRIu64
          ", \"gathered_bytes\": %" PRIu64 ", \"gathered_count\": %" PRIu64,
          summary.model_bytes, summary.sharded_bytes, summary.gathered_bytes,
          summary.gathered_count);
    print(to, ", \"most_bytes\": %" PRIu64 ", \"least_bytes\": %" PRIu64 ", \"imbalance\": ",
          summary.most_bytes, summary.least_bytes);
    print_real(to, summary.imbalance);
    print(to, ",\n  \"per_rank\": [");
    for (int r = 0; r < plan->ranks; r++) {
        const tsr_shard_rank_total *total = &plan->totals[r];
        print(to,
              "%s\n   {\"rank\": %d, \"total_bytes\": %" PRIu64 ", \"sharded_bytes\": %" PRIu64
              ", \"gathered_bytes\": %" PRIu64 ", \"shard_count\": %" PRIu64 "}",
              r == 0 ? "" : ",", r, total->total_bytes, total->sharded_bytes, total->gathered_bytes,
              total->shard_count);
    }
    print(to, "]},\n");
}

static void print_param(writer *to, const tsr_shard_plan *plan, uint64_t p)
{
    const tsr_shard_param *param = &plan->params.items[p];
    const tsr_shard_range *ranges = plan->ranges + p * (uint64_t)plan->ranks;
    print(to, "%s\n  {\"name\": ", p == 0 ? "" : ",");
    print_text(to, param->name);
    print(to, ", \"shape\": [");
    for (int i = 0; i < param->ndim; i++)
        print(to, "%s%" PRId64, i == 0 ? "" : ", ", param->shape[i]);
    print(to, "], \"dtype\": \"%s\", \"layer\": ", param->dtype);
    print_text(to, param->layer);
    if (param->always_gather) {
        print(to, ", \"always_gather\": true}");
        return;
    }
    for (int r = 0; r < plan->ranks; r++)
        print(to, "%s[%" PRIu64 ", %" PRIu64 "]", r == 0 ? ", \"shards\": [" : ", ",
              ranges[r].start, ranges[r].count);
    print(to, "]}");
}

static void write_plan(writer *to, const tsr_shard_plan *plan)
{
    print_head(to, plan);
    print_summary(to, plan);
    print(to, " \"params\": [");
    for (uint64_t p = 0; p < plan->params.count; p++)
        print_param(to, plan, p);
    print(to, "]}\n");
}

tsr_status tsr_shard_plan_save_json(const tsr_shard_plan *plan, size_t capacity_bytes, char *text,
                                    size_t *size_bytes)
{
    TSR__REQUIRE(plan != NULL && size_bytes != NULL, "shard: %s is NULL",
                 plan != NULL ? "size_bytes" : "plan");
    writer measure = {0}, to = {.text = text};
    write_plan(&measure, plan);
    if (text != NULL) {
        TSR__REQUIRE(capacity_bytes >= measure.length,
                     "shard: the plan takes %zu bytes of JSON, there is room for %zu",
                     measure.length, capacity_bytes);
        write_plan(&to, plan);
    }
    *size_bytes = measure.length;
    return TSR_OK;
}
