#include "gpu/cpu_drivers/attention/blocks.h"

enum {
    BLOCK_KEYS = 512,
    BLOCK_ROWS = 512,
    /* BLOCK_ROWS with a causal mask and in the backward call. With a causal mask, smaller blocks
     * contain fewer scores of keys that the query does not see. In the backward call, products
     * over so few queries need no copies of their operands. */
    BLOCK_ROWS_SMALL = 128,
    LONG_ROW = 256,
    MAX_HEADS = 65535, /* the largest number of heads, which are the y dimension of a dispatch */
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the smaller of both numbers, but at least 1. */
static int64_t fit(int64_t room, int64_t count)
{
    return room < 1 ? 1 : least(room, count);
}

static bool is_regular(const tsr__attention *c)
{
    const uint32_t *kv_head = tsr__attention_kv_head(c);
    if (c->kv_heads == 0 || c->heads % c->kv_heads != 0)
        return false;
    for (int64_t h = 0; h < c->heads; h++)
        if (kv_head[h] != h / (c->heads / c->kv_heads))
            return false;
    return true;
}

void tsr__attention_blocks_init(tsr__attention_blocks *b, const tsr__attention *call, int64_t unit,
                                int64_t max_scores, int64_t max_columns)
{
    const int64_t keys = least(call->kv_len, BLOCK_KEYS), row_units = (keys + unit - 1) / unit;
    const bool small = call->params.causal || call->dy;
    *b = (tsr__attention_blocks){
        .call = call,
        .keys = keys,
        /* An odd number of units spreads a column of scores over the sets of a cache. */
        .row_keys = (keys < LONG_ROW ? row_units : row_units | 1) * unit,
        .rows = least(call->q_len, small ? BLOCK_ROWS_SMALL : BLOCK_ROWS),
        .regular = is_regular(call),
    };
    const int64_t per_head = b->rows * b->row_keys;
    const int64_t room = least(max_scores / per_head, MAX_HEADS);
    const int64_t group = b->regular ? call->heads / call->kv_heads : call->heads;
    b->readers = fit(room, group);
    const int64_t kv_room = max_columns / (call->kv_len > 0 ? call->kv_len : 1);
    b->group =
        b->regular && b->readers == group ? fit(least(room / group, kv_room), call->kv_heads) : 1;
    b->sequences = b->regular && b->readers == group && b->group == call->kv_heads
                       ? fit(least(room / call->heads, kv_room / call->kv_heads), call->batch)
                       : 1;
    b->max_scores = per_head * b->readers * b->group * b->sequences;
}

/* Returns the number of neighbouring heads, beginning with `head`, that read the same kv head. */
static int64_t run_from(const tsr__attention *c, int64_t head)
{
    const uint32_t *kv_head = tsr__attention_kv_head(c);
    int64_t end = head + 1;
    while (end < c->heads && kv_head[end] == kv_head[head])
        end++;
    return end - head;
}

/* Sets the slice that starts with sequence number `batch` and head number `head`. */
static void set_slice(const tsr__attention_blocks *b, int64_t batch, int64_t head,
                      tsr__attention_slice *s)
{
    const tsr__attention *c = b->call;
    *s = (tsr__attention_slice){
        .batch = batch,
        .batches = least(b->sequences, c->batch - batch),
        .kv_head = tsr__attention_kv_head(c)[head],
        .head = head,
        .readers = least(b->readers, run_from(c, head)),
        .step = b->regular ? c->heads / c->kv_heads : 0,
    };
    s->kv_heads = least(b->group, c->kv_heads - s->kv_head);
}

bool tsr__attention_first_slice(const tsr__attention_blocks *b, tsr__attention_slice *s)
{
    if (b->call->batch == 0 || b->call->heads == 0)
        return false;
    set_slice(b, 0, 0, s);
    return true;
}

bool tsr__attention_next_slice(const tsr__attention_blocks *b, tsr__attention_slice *s)
{
    int64_t batch = s->batch, head = s->head + s->kv_heads * s->readers;
    if (head >= b->call->heads) {
        head = 0;
        batch += s->batches;
    }
    if (batch >= b->call->batch)
        return false;
    set_slice(b, batch, head, s);
    return true;
}

void tsr__attention_range(const tsr__attention *c, int64_t row, int64_t rows, int64_t *first,
                          int64_t *end)
{
    const int64_t position = row + c->kv_len - c->q_len;
    *first = 0;
    *end = c->kv_len;
    /* A sequence with fewer queries than q_len may have later positions. */
    if (!c->params.causal || c->params.q_lengths)
        return;
    *end = least(*end, position + rows);
    *end = *end < 0 ? 0 : *end;
    /* Without kv_lengths only: a sequence that has fewer keys than kv_len has its queries at
     * earlier positions, and its windows begin earlier. */
    if (c->params.window > 0 && !c->params.kv_lengths && position >= c->params.window)
        *first = position - c->params.window + 1;
    *first = least(*first, *end);
}
