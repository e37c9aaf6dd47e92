#include "gpu/cpu_drivers/attention/scores.h"

#include <string.h>

#include "base/checked.h"
#include "shaders/params/vectors.h"

/* Subgroups per workgroup. The array identity[] of the push constants, in which shaders look up the
 * number of their subgroup (lavapipe.glsl), has this many elements. */
enum { SUBGROUPS = 8 };

int64_t tsr__attention_scores_unit(const tsr_device *device)
{
    return (int64_t)device->info.subgroup_size * (TSR_VECTOR_BYTES / 4);
}

/* Returns the number of units (scores.h) that a row of `columns` scores takes, rounded up. There
 * are only a few different numbers, because each needs a pipeline. */
static uint32_t units_for(int64_t columns, int64_t unit)
{
    const uint32_t units = (uint32_t)((columns + unit - 1) / unit);
    uint32_t rounded = 1;
    while (rounded < units && rounded < 4)
        rounded *= 2;
    return units <= rounded ? rounded : (units + 3) / 4 * 4;
}

static uint32_t columns_of(const tsr__attention_scores *b, uint32_t units, int64_t unit)
{
    const tsr__attention *c = b->call;
    const int64_t position = b->row + c->kv_len - c->q_len - b->key;
    if (c->params.starts)
        return TSR_SCORES_WINDOW;
    if (b->lengths && c->params.causal)
        return c->params.window > 0 ? TSR_SCORES_WINDOW : TSR_SCORES_CAUSAL;
    if (b->lengths)
        return TSR_SCORES_KEYS;
    if (c->params.window > 0 && position + b->rows - 1 >= c->params.window)
        return TSR_SCORES_WINDOW;
    if (c->params.causal && position < b->keys - 1)
        return TSR_SCORES_CAUSAL;
    return b->keys == units * unit ? TSR_SCORES_ALL : TSR_SCORES_KEYS;
}

static void add_access(tsr__dispatch *dispatch, tsr__buffer *buffer, bool write)
{
    if (buffer)
        dispatch->access[dispatch->access_count++] =
            write ? tsr__write_buffer(buffer) : tsr__read_buffer(buffer);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static uint64_t address_of(const tsr__buffer *buffer)
{
    return buffer ? buffer->address : 0;
}

tsr_status tsr__attention_scores_run(tsr_stream *stream, const tsr__attention_scores *b)
{
    const tsr__attention *c = b->call;
    const tsr_device *device = tsr_stream_device(stream);
    const uint32_t lanes = device->info.subgroup_size;
    const int64_t unit = tsr__attention_scores_unit(device);
    /* A row has room for at least one unit. */
    const bool tempered = c->params.temperature != 0;
    const uint32_t most = (uint32_t)(b->row_keys / unit), wanted = units_for(b->keys, unit);
    const uint32_t units = wanted < most ? wanted : most;
    struct tsr_attention_scores_push push = {
        .identity = {TSR_IDENTITY_8},
        .scores = address_of(b->scores),
        .gradient = address_of(b->gradient),
        .mask = address_of(b->mask),
        .state = address_of(b->state),
        .lse = b->lse + 4 * (uint64_t)b->row,
        .y = address_of(b->y),
        .lengths = c->params.starts ? b->starts : address_of(b->lengths),
        .rows = (uint32_t)b->rows,
        .heads = (uint32_t)b->heads,
        .q_len = (uint32_t)c->q_len,
        .position = (int32_t)(b->row - b->key + (b->lengths ? 0 : c->kv_len - c->q_len)),
        .keys = (uint32_t)b->keys,
        .window = c->params.window > 0 && c->params.window < INT32_MAX ? (uint32_t)c->params.window
                                                                       : INT32_MAX,
        .scale = c->params.scale,
        .softcap = c->params.softcap,
        .row = (uint32_t)b->row,
        .key = (uint32_t)b->key,
    };
    tsr__dispatch dispatch = {
        .shader = b->backward ? TSR__SHADER_ATTENTION_SCORES_GRAD : TSR__SHADER_ATTENTION_SCORES,
        .spec_count = 14,
        .spec = {SUBGROUPS * lanes, lanes, units, (uint32_t)b->row_keys, columns_of(b, units, unit),
                 c->params.softcap > 0, b->mask != NULL,
                 b->backward ? b->function
                 : b->first  ? 0
                             : (uint32_t)(b->y_columns / unit),
                 b->backward ? 0 : (uint32_t)b->y_columns, b->lengths != NULL, b->sinks,
                 bits_of(tempered ? c->params.temperature : 0),
                 tempered ? (uint32_t)c->params.temperature_length : 1, c->params.starts != NULL},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32((uint32_t)b->rows, SUBGROUPS),
                   (uint32_t)(b->heads * (b->lengths ? 1 : b->sequences)),
                   (uint32_t)(b->lengths ? b->sequences : 1)},
    };
    add_access(&dispatch, b->scores, true);
    add_access(&dispatch, b->gradient, true);
    add_access(&dispatch, b->mask, false);
    add_access(&dispatch, b->state, true);
    add_access(&dispatch, b->lengths, false);
    if (c->params.starts)
        dispatch.access[dispatch.access_count++] = tsr__read_of(c->params.starts);
    add_access(&dispatch, b->lse_buffer, !b->backward);
    add_access(&dispatch, b->first ? NULL : b->y, true);
    return tsr__stream_dispatch(stream, &dispatch);
}
