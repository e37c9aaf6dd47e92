/* Reads a plan from JSON. The members may be in any order. The reader therefore first finds the
 * offsets of all members and then reads them in a fixed order, in which the number of ranks comes
 * before the parameters. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "shard/formats/readers.h"
#include "shard/plan/shard_plan.h"
#include "json/text_check.h"

enum { SCHEMA, SCHEMA_VERSION, TESSERA, STRATEGY, RANKS, RATES, MEMORY, SUMMARY, PARAMS, MEMBERS };

typedef struct plan_reader {
    tsr__json json;
    tsr__param_text text;
    size_t offset[MEMBERS]; /* the offsets of the members' values; 0 if a member is missing */
    char strategy[TSR__STRATEGY_NAME];
    uint64_t ranks;
    double *rates;
    uint64_t *memory_bytes;
    size_t *shards; /* for each parameter, the offset of its member "shards" in the text; 0 if it
                       has none */
    size_t shards_capacity;
} plan_reader;

/* Finds the offsets of all members of the plan's object. */
static tsr_status find_members(plan_reader *reader)
{
    static const char *const names[] = {"schema", "schema_version", "tessera", "strategy", "ranks",
                                        "rates",  "memory_bytes",   "summary", "params",   NULL};
    tsr__json *json = &reader->json;
    unsigned seen = 0;
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(json, reader->text.key, &more));
        if (!more)
            break;
        TSR__TRY(tsr__json_known(json, names, reader->text.key, &seen, &member));
        reader->offset[member] = json->at;
        TSR__TRY(tsr__json_skip(json));
    }
    TSR__TRY(tsr__json_end(json));
    for (int i = 0; i < MEMBERS; i++)
        if (reader->offset[i] == 0 && i != TESSERA && i != RATES && i != MEMORY && i != SUMMARY)
            return tsr__json_fail(json, 0, "the plan has no \"%s\"", names[i]);
    return TSR_OK;
}

static tsr_status read_schema(plan_reader *reader)
{
    tsr__json *json = &reader->json;
    char schema[32];
    uint64_t version = 0;
    json->at = reader->offset[SCHEMA];
    TSR__TRY(tsr__json_string(json, sizeof schema, schema));
    if (strcmp(schema, "tessera.plan") != 0)
        return tsr__json_fail(json, reader->offset[SCHEMA], "the schema is not tessera.plan");
    json->at = reader->offset[SCHEMA_VERSION];
    TSR__TRY(tsr__json_integer(json, &version));
    if (version != 1)
        return tsr__json_fail(json, reader->offset[SCHEMA_VERSION], "version %" PRIu64 " is not 1",
                              version);
    json->at = reader->offset[STRATEGY];
    TSR__TRY(tsr__json_string(json, sizeof reader->strategy, reader->strategy));
    json->at = reader->offset[RANKS];
    TSR__TRY(tsr__json_integer(json, &reader->ranks));
    if (reader->ranks < 1 || reader->ranks > TSR_SHARD_MAX_RANKS)
        return tsr__json_fail(json, reader->offset[RANKS], "%" PRIu64 " ranks are outside 1 to %d",
                              reader->ranks, TSR_SHARD_MAX_RANKS);
    return TSR_OK;
}

/* Reads an array of one number for each rank, into `reals` or `integers`; the caller passes one of
 * them, and NULL for the other. */
static tsr_status read_numbers(plan_reader *reader, int member, double *reals, uint64_t *integers)
{
    tsr__json *json = &reader->json;
    bool more = false;
    json->at = reader->offset[member];
    TSR__TRY(tsr__json_enter(json, '['));
    for (uint64_t r = 0;; r++) {
        TSR__TRY(tsr__json_element(json, &more));
        if (more != (r < reader->ranks))
            return tsr__json_fail(json, reader->offset[member],
                                  "\"%s\" does not have one number for each of %" PRIu64 " ranks",
                                  member == RATES ? "rates" : "memory_bytes", reader->ranks);
        if (!more)
            return TSR_OK;
        TSR__TRY(reals != NULL ? tsr__json_real(json, &reals[r])
                               : tsr__json_integer(json, &integers[r]));
    }
}

static tsr_status read_ranks(plan_reader *reader)
{
    if (reader->offset[RATES] != 0) {
        reader->rates = tsr__calloc(reader->ranks, sizeof *reader->rates);
        if (reader->rates == NULL)
            return TSR_ERR_NO_MEMORY;
        TSR__TRY(read_numbers(reader, RATES, reader->rates, NULL));
    }
    if (reader->offset[MEMORY] != 0) {
        reader->memory_bytes = tsr__calloc(reader->ranks, sizeof *reader->memory_bytes);
        if (reader->memory_bytes == NULL)
            return TSR_ERR_NO_MEMORY;
        TSR__TRY(read_numbers(reader, MEMORY, NULL, reader->memory_bytes));
    }
    return TSR_OK;
}

static tsr_status with_offset(const tsr__json *json, size_t offset, tsr_status status)
{
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
        return status;
    return tsr__json_fail_context(json, offset, TSR_ERR_INVALID);
}

static tsr_status read_param(plan_reader *reader, tsr_shard_plan *plan)
{
    tsr__json *json = &reader->json;
    tsr_shard_param param;
    size_t start = json->at, shards = 0, index = plan->params.count;
    TSR__TRY(tsr__json_param(json, &reader->text, index, &param, &shards));
    if (param.always_gather == (shards != 0))
        return tsr__json_fail(json, start,
                              param.always_gather ? "it is always gathered, but has \"shards\""
                                                  : "\"shards\" is missing");
    TSR__TRY(with_offset(json, start, tsr__params_add(&plan->params, &param)));
    tsr__subject_clear(&json->subject);
    void *offsets = reader->shards;
    TSR__TRY(tsr__grow(&offsets, &reader->shards_capacity, index + 1, sizeof *reader->shards));
    reader->shards = offsets;
    reader->shards[index] = shards;
    return TSR_OK;
}

static tsr_status read_params(plan_reader *reader, tsr_shard_plan *plan)
{
    tsr__json *json = &reader->json;
    bool more = false;
    json->at = reader->offset[PARAMS];
    TSR__TRY(tsr__json_enter(json, '['));
    for (;;) {
        TSR__TRY(tsr__json_element(json, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(read_param(reader, plan));
    }
}

static tsr_status read_range(tsr__json *json, tsr_shard_range *range)
{
    uint64_t numbers[2] = {0, 0};
    bool more = false;
    size_t start = json->at;
    TSR__TRY(tsr__json_enter(json, '['));
    for (int i = 0;; i++) {
        TSR__TRY(tsr__json_element(json, &more));
        if (more != (i < 2))
            return tsr__json_fail(json, start, "a shard is not an array of two numbers");
        if (!more)
            break;
        TSR__TRY(tsr__json_integer(json, &numbers[i]));
    }
    *range = (tsr_shard_range){numbers[0], numbers[1]};
    return TSR_OK;
}

static tsr_status read_shards(plan_reader *reader, tsr_shard_plan *plan)
{
    tsr__json *json = &reader->json;
    bool more = false;
    for (uint64_t p = 0; p < plan->params.count; p++) {
        if (reader->shards[p] == 0)
            continue;
        json->at = reader->shards[p];
        tsr__subject_set(&json->subject, "parameter", plan->params.items[p].name, p);
        TSR__TRY(tsr__json_enter(json, '['));
        for (uint64_t r = 0;; r++) {
            TSR__TRY(tsr__json_element(json, &more));
            if (more != (r < reader->ranks))
                return tsr__json_fail(json, reader->shards[p],
                                      "\"shards\" does not have one entry for each of %" PRIu64
                                      " ranks",
                                      reader->ranks);
            if (!more)
                break;
            TSR__TRY(read_range(json, &plan->ranges[p * reader->ranks + r]));
        }
    }
    tsr__subject_clear(&json->subject);
    return TSR_OK;
}

static tsr_status read_plan(plan_reader *reader, tsr_shard_plan **out)
{
    const tsr__json *json = &reader->json;
    TSR__TRY(find_members(reader));
    TSR__TRY(read_schema(reader));
    TSR__TRY(read_ranks(reader));
    tsr_shard_plan *plan = NULL;
    TSR__TRY(with_offset(json, 0,
                         tsr__plan_start(reader->strategy, (int)reader->ranks, reader->rates,
                                         reader->memory_bytes, &plan)));
    tsr_status status = read_params(reader, plan);
    if (status == TSR_OK)
        status = with_offset(json, reader->offset[PARAMS], tsr__plan_listed(plan));
    if (status == TSR_OK)
        status = read_shards(reader, plan);
    if (status == TSR_OK)
        status = with_offset(json, reader->offset[PARAMS], tsr__plan_finish(plan));
    if (status != TSR_OK) {
        tsr_shard_plan_destroy(&plan);
        return status;
    }
    *out = plan;
    return TSR_OK;
}

tsr_status tsr_shard_plan_load_json(const char *text, size_t size_bytes, tsr_shard_plan **out)
{
    TSR__REQUIRE(out != NULL, "plan: out is NULL");
    TSR__REQUIRE(text != NULL || size_bytes == 0, "plan: text is NULL");
    plan_reader *reader = tsr__calloc(1, sizeof *reader);
    if (reader == NULL)
        return TSR_ERR_NO_MEMORY;
    reader->json =
        (tsr__json){.text = text != NULL ? text : "", .size = size_bytes, .what = "plan"};
    tsr_status status = read_plan(reader, out);
    tsr__free(reader->rates);
    tsr__free(reader->memory_bytes);
    tsr__free(reader->shards);
    tsr__free(reader);
    return status;
}
