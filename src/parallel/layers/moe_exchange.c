/* Experts that data-parallel ranks divide among them. The host knows how many rows each rank sends
 * to each, so a layer waits for the device once in a forward pass. */
#include <string.h>

#include "base/alloc.h"
#include "parallel/layers/moe.h"
#include "tessera/ops.h"

/* What the host computes an exchange from, and what it uploads. */
typedef struct plan {
    const tsr__over_data *over;
    int ranks, rank;
    int64_t experts, pairs, chosen; /* experts: of all data-parallel ranks together */
    int32_t *offsets;               /* [ranks,experts + 1], as tsr_route_sort writes them */
    int32_t *order, *tokens, *inverse, *local;
} plan;

static void free_plan(plan *p)
{
    tsr__free(p->offsets);
    tsr__free(p->order);
    tsr__free(p->tokens);
    tsr__free(p->inverse);
    tsr__free(p->local);
}

static int64_t first_expert(const plan *p, int rank)
{
    int64_t first = 0;
    for (int r = 0; r < rank; r++)
        first += p->over->sizes[r];
    return first;
}

/* The number of rows that `from` sends for experts first … first + count − 1. */
static int64_t rows_for(const plan *p, int from, int64_t first, int64_t count)
{
    const int32_t *offsets = p->offsets + from * (p->experts + 1);
    return offsets[first + count] - offsets[first];
}

static int64_t rows_between(const plan *p, int from, int to)
{
    return rows_for(p, from, first_expert(p, to), p->over->sizes[to]);
}

static void set_back(tsr__moe_exchange *x)
{
    x->back = (tsr__group_rows){x->out.received, x->out.sent, x->out.most};
}

static void point_to_numbers(tsr__moe_exchange *x, const int64_t *numbers)
{
    const int ranks = tsr_group_size(x->group);
    x->out = (tsr__group_rows){numbers, numbers + ranks, numbers[2 * (size_t)ranks]};
    set_back(x);
    x->sent = x->received = 0;
    for (int r = 0; r < ranks; r++) {
        x->sent += x->out.sent[r];
        x->received += x->out.received[r];
    }
}

static tsr_status count_rows(const plan *p, tsr__moe_exchange *x)
{
    const size_t ranks = (size_t)p->ranks;
    x->numbers = tsr__calloc(2 * ranks + 1, sizeof *x->numbers);
    if (!x->numbers)
        return TSR_ERR_NO_MEMORY;
    for (int r = 0; r < p->ranks; r++) {
        x->numbers[r] = rows_between(p, p->rank, r);
        x->numbers[p->ranks + r] = rows_between(p, r, p->rank);
        for (int q = 0; q < p->ranks; q++)
            if (rows_between(p, r, q) > x->numbers[2 * ranks])
                x->numbers[2 * ranks] = rows_between(p, r, q);
    }
    point_to_numbers(x, x->numbers);
    return TSR_OK;
}

/* Sorts the pairs, and downloads their order and all ranks' offsets. */
static tsr_status download_choice(const tsr__moe *m, tsr__temps *temps, const tsr_tensor *ids,
                                  plan *p, tsr_tensor **order)
{
    tsr_stream *stream = m->base.stream;
    tsr_tensor *offsets, *row, *all;
    const int64_t ends = p->experts + 1;
    TSR__TRY(tsr__temp_new(temps, TSR_I32, 1, &p->pairs, order));
    TSR__TRY(tsr__temp_new(temps, TSR_I32, 1, &ends, &offsets));
    TSR__TRY(tsr__temp_new(temps, TSR_I32, 2, (int64_t[]){p->ranks, ends}, &all));
    TSR__TRY(tsr__temp_reshape(temps, offsets, 2, (int64_t[]){1, ends}, &row));
    TSR__TRY(tsr_fill(stream, offsets, 0));
    if (p->experts > 0)
        TSR__TRY(tsr_route_sort(stream, *order, offsets, ids));
    TSR__TRY(tsr_group_all_gather(p->over->group, all, row, 0, NULL, NULL));
    TSR__TRY(tsr_tensor_download(stream, all, p->offsets,
                                 (uint64_t)(p->ranks * ends) * sizeof *p->offsets));
    return p->pairs > 0 ? tsr_tensor_download(stream, *order, p->order,
                                              (uint64_t)p->pairs * sizeof *p->order)
                        : TSR_OK;
}

static void invert_order(const plan *p, int64_t sent)
{
    for (int64_t i = 0; i < p->pairs; i++)
        p->inverse[i] = -1;
    for (int64_t i = 0; i < sent; i++) {
        p->inverse[p->order[i]] = (int32_t)i;
        p->tokens[i] = p->order[i] / (int32_t)p->chosen;
    }
}

/* Writes the experts of the rows that arrive, rank by rank and expert by expert. */
static void list_local(const plan *p)
{
    int64_t next = 0;
    const int64_t first = first_expert(p, p->rank);
    for (int r = 0; r < p->ranks; r++)
        for (int64_t e = 0; e < p->over->sizes[p->rank]; e++)
            for (int64_t i = rows_for(p, r, first + e, 1); i > 0; i--)
                p->local[next++] = (int32_t)e;
}

static tsr_status upload_numbers(const tsr__moe *m, tsr__temps *temps, const int32_t *numbers,
                                 int64_t count, tsr_tensor **out)
{
    TSR__TRY(tsr__temp_new(temps, TSR_I32, 1, &count, out));
    return count > 0
               ? tsr_tensor_upload(m->base.stream, *out, numbers, (uint64_t)count * sizeof *numbers)
               : TSR_OK;
}

static tsr_status make_plan(const tsr__moe *m, tsr__temps *temps, const tsr_tensor *ids, plan *p,
                            tsr__moe_exchange *x, tsr_tensor **local)
{
    tsr_tensor *order, *flat;
    p->offsets = tsr__calloc((size_t)p->ranks * ((size_t)p->experts + 1), sizeof *p->offsets);
    p->order = tsr__calloc((size_t)p->pairs + 1, sizeof *p->order);
    p->tokens = tsr__calloc((size_t)p->pairs + 1, sizeof *p->tokens);
    p->inverse = tsr__calloc((size_t)p->pairs + 1, sizeof *p->inverse);
    if (!p->offsets || !p->order || !p->tokens || !p->inverse)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(download_choice(m, temps, ids, p, &order));
    TSR__TRY(count_rows(p, x));
    p->local = tsr__calloc((size_t)x->received + 1, sizeof *p->local);
    if (!p->local)
        return TSR_ERR_NO_MEMORY;
    invert_order(p, x->sent);
    list_local(p);
    TSR__TRY(upload_numbers(m, temps, p->tokens, x->sent, &x->rows));
    TSR__TRY(tsr__temp_slice(temps, order, 0, 0, x->sent, &x->pairs));
    TSR__TRY(upload_numbers(m, temps, p->inverse, p->pairs, &x->inverse));
    TSR__TRY(upload_numbers(m, temps, p->local, x->received, &flat));
    return tsr__temp_reshape(temps, flat, 2, (int64_t[]){x->received, 1}, local);
}

tsr_status tsr__moe_exchange_init(const tsr__moe *m, tsr__temps *temps, const tsr_tensor *ids,
                                  tsr__moe_exchange *out, tsr_tensor **local)
{
    const tsr__over_data *over = tsr__moe_over_data(m);
    plan p = {.over = over,
              .ranks = tsr_group_size(over->group),
              .rank = tsr_group_rank(over->group),
              .pairs = tsr_layout_count(tsr_tensor_layout(ids)),
              .chosen = m->chosen};
    p.experts = first_expert(&p, p.ranks);
    *out = (tsr__moe_exchange){.group = over->group};
    const tsr_status status = make_plan(m, temps, ids, &p, out, local);
    free_plan(&p);
    return status;
}

void tsr__moe_exchange_finish(tsr__moe_exchange *exchange)
{
    tsr__free(exchange->numbers);
    exchange->numbers = NULL;
}

tsr_status tsr__moe_exchange_save(tsr__moe_exchange *x, tsr_layer_saved *saved)
{
    TSR__TRY(tsr__keep(x->rows, &saved->expert[TSR__SAVED_ROWS]));
    TSR__TRY(tsr__keep(x->pairs, &saved->expert[TSR__SAVED_PAIRS]));
    TSR__TRY(tsr__keep(x->inverse, &saved->expert[TSR__SAVED_INVERSE]));
    saved->exchanged = x->numbers;
    x->numbers = NULL;
    return TSR_OK;
}

void tsr__moe_exchange_saved(const tsr__moe *m, const tsr_layer_saved *saved,
                             tsr__moe_exchange *out)
{
    *out = (tsr__moe_exchange){.group = tsr__moe_over_data(m)->group,
                               .rows = saved->expert[TSR__SAVED_ROWS],
                               .pairs = saved->expert[TSR__SAVED_PAIRS],
                               .inverse = saved->expert[TSR__SAVED_INVERSE]};
    point_to_numbers(out, saved->exchanged);
}

tsr_status tsr__moe_exchange_send(const tsr__moe_exchange *x, tsr__temps *temps,
                                  const tsr_tensor *from, const tsr_tensor *indices, tsr_tensor **y)
{
    const tsr_layout *l = tsr_tensor_layout(from);
    tsr_tensor *sent;
    TSR__TRY(tsr__temp_new(temps, l->dtype, 2, (int64_t[]){x->sent, l->shape[1]}, &sent));
    TSR__TRY(tsr__temp_new(temps, l->dtype, 2, (int64_t[]){x->received, l->shape[1]}, y));
    TSR__TRY(tsr_index_select(temps->stream, sent, from, 0, indices));
    return tsr__group_all_to_all(x->group, *y, sent, &x->out);
}

tsr_status tsr__moe_exchange_return(const tsr__moe_exchange *x, tsr__temps *temps,
                                    const tsr_tensor *from, tsr_tensor **y)
{
    const tsr_layout *l = tsr_tensor_layout(from);
    const int64_t pairs = tsr_tensor_layout(x->inverse)->shape[0], width = l->shape[1];
    tsr_tensor *back;
    TSR__TRY(tsr__temp_new(temps, l->dtype, 2, (int64_t[]){x->sent, width}, &back));
    TSR__TRY(tsr__temp_new(temps, l->dtype, 2, (int64_t[]){pairs, width}, y));
    TSR__TRY(tsr__group_all_to_all(x->group, back, from, &x->back));
    return tsr_index_select(temps->stream, *y, back, 0, x->inverse);
}
