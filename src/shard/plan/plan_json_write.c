/* Writes a plan as JSON. When the plan was created, its names were checked: they are valid UTF-8
 * without control characters. */
#include <inttypes.h>

#include "shard/plan/shard_plan.h"
#include "json/json_write.h"

static void print_head(tsr__json_writer *to, const tsr_shard_plan *plan)
{
    tsr__json_print(to,
                    "{\"schema\": \"tessera.plan\", \"schema_version\": 1, \"tessera\": \"%s\",\n",
                    tsr_version());
    tsr__json_print(to, " \"strategy\": ");
    tsr__json_print_string(to, plan->strategy);
    tsr__json_print(to, ", \"ranks\": %d", plan->ranks);
    for (int r = 0; r < plan->ranks && plan->rates != NULL; r++) {
        tsr__json_print(to, r == 0 ? ",\n \"rates\": [" : ", ");
        tsr__json_print_real(to, plan->rates[r]);
    }
    tsr__json_print(to, plan->rates != NULL ? "]" : "");
    for (int r = 0; r < plan->ranks && plan->memory_bytes != NULL; r++) {
        tsr__json_print(to, r == 0 ? ",\n \"memory_bytes\": [" : ", ");
        tsr__json_print_u64(to, plan->memory_bytes[r]);
    }
    tsr__json_print(to, plan->memory_bytes != NULL ? "],\n" : ",\n");
}

static void print_summary(tsr__json_writer *to, const tsr_shard_plan *plan)
{
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    /* cannot fail */
    (void)!tsr_shard_plan_get_summary(plan, &summary);
    tsr__json_print(to,
                    " \"summary\": {\"model_bytes\": %" PRIu64 ", \"sharded_bytes\": %" PRIu64
                    ", \"gathered_bytes\": %" PRIu64 ", \"gathered_count\": %" PRIu64,
                    summary.model_bytes, summary.sharded_bytes, summary.gathered_bytes,
                    summary.gathered_count);
    tsr__json_print(to,
                    ", \"max_bytes\": %" PRIu64 ", \"least_bytes\": %" PRIu64 ", \"imbalance\": ",
                    summary.max_bytes, summary.least_bytes);
    tsr__json_print_real(to, summary.imbalance);
    tsr__json_print(to, ",\n  \"per_rank\": [");
    for (int r = 0; r < plan->ranks; r++) {
        const tsr_shard_rank_total *total = &plan->totals[r];
        tsr__json_print(to,
                        "%s\n   {\"rank\": %d, \"total_bytes\": %" PRIu64
                        ", \"sharded_bytes\": %" PRIu64 ", \"gathered_bytes\": %" PRIu64
                        ", \"shard_count\": %" PRIu64 "}",
                        r == 0 ? "" : ",", r, total->total_bytes, total->sharded_bytes,
                        total->gathered_bytes, total->shard_count);
    }
    tsr__json_print(to, "]},\n");
}

static void print_param(tsr__json_writer *to, const tsr_shard_plan *plan, uint64_t p)
{
    const tsr_shard_param *param = &plan->params.items[p];
    const tsr_shard_range *ranges = plan->ranges + p * (uint64_t)plan->ranks;
    tsr__json_print(to, "%s\n  {\"name\": ", p == 0 ? "" : ",");
    tsr__json_print_string(to, param->name);
    tsr__json_print(to, ", \"shape\": [");
    for (int i = 0; i < param->ndim; i++)
        tsr__json_print(to, "%s%" PRId64, i == 0 ? "" : ", ", param->shape[i]);
    tsr__json_print(to, "], \"dtype\": \"%s\", \"layer\": ", param->dtype);
    tsr__json_print_string(to, param->layer);
    if (param->always_gather) {
        tsr__json_print(to, ", \"always_gather\": true}");
        return;
    }
    for (int r = 0; r < plan->ranks; r++)
        tsr__json_print(to, "%s[%" PRIu64 ", %" PRIu64 "]", r == 0 ? ", \"shards\": [" : ", ",
                        ranges[r].start, ranges[r].count);
    tsr__json_print(to, "]}");
}

static void write_plan(tsr__json_writer *to, const tsr_shard_plan *plan)
{
    print_head(to, plan);
    print_summary(to, plan);
    tsr__json_print(to, " \"params\": [");
    for (uint64_t p = 0; p < plan->params.count; p++)
        print_param(to, plan, p);
    tsr__json_print(to, "]}\n");
}

tsr_status tsr_shard_plan_save_json(const tsr_shard_plan *plan, size_t capacity_bytes, char *text,
                                    size_t *size_bytes)
{
    TSR__REQUIRE(plan != NULL && size_bytes != NULL, "shard: %s is NULL",
                 plan != NULL ? "size_bytes" : "plan");
    tsr__json_writer measure = {0}, to = {.text = text};
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
