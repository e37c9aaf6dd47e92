/* Adapters of which each row has another one: products of groups of rows, as those of experts. */
#include "parallel/layers/adapter.h"

#include "base/alloc.h"
#include "tessera/moe.h"

/* The bank ----------------------------------------------------------------------------------- */

/* Sets the ranks and ranges of a layer's blocks. Returns the sum of the ranks. */
static int64_t measure(const tsr__linear *linear, struct tsr__adapter_bank *bank)
{
    int64_t ranks = 0;
    for (const tsr__adapter *a = linear->base.adapters; a; a = a->next)
        for (int i = 0; i < a->count; i++) {
            const tsr__adapted *part = &a->part[i];
            struct tsr__adapter_bank_block *block = &bank->block[part->block];
            const tsr__column_block *of =
                a->is_row ? NULL : &((const tsr__column_linear *)linear)->block[part->block];
            block->rank = part->rank > block->rank ? part->rank : block->rank;
            block->first = of ? of->start : 0;
            block->count = of ? of->division.length : linear->output_size;
        }
    for (int i = 0; i < TSR__MAX_ADAPTED; i++) {
        bank->block[i].at = ranks;
        ranks += bank->block[i].rank;
    }
    return ranks;
}

static tsr_status allocate(const tsr__linear *linear, int sets, struct tsr__adapter_bank *bank)
{
    const tsr_layer *layer = &linear->base;
    int64_t own[TSR__PARAMETER_DIMS];
    tsr__parameter_shape(layer->adapters->base.parameter[0], own);
    const int64_t ranks = measure(linear, bank), shape[3] = {sets, ranks, own[1]};
    TSR__TRY(tsr_tensor_create(layer->device, TSR_F32, 3, shape, &bank->a));
    TSR__TRY(tsr_fill(layer->stream, bank->a, 0));
    for (int i = 0; i < TSR__MAX_ADAPTED; i++) {
        struct tsr__adapter_bank_block *block = &bank->block[i];
        const int64_t rows[3] = {sets, block->count, block->rank};
        if (block->rank == 0 || block->count == 0)
            continue;
        TSR__TRY(tsr_tensor_create(layer->device, TSR_F32, 3, rows, &block->b));
        TSR__TRY(tsr_fill(layer->stream, block->b, 0));
    }
    return TSR_OK;
}

/* Gets rows or columns at … at + count − 1 of the matrix of a set. */
static tsr_status matrix_of(tsr__temps *temps, const tsr_tensor *of, int set, int dim, int64_t at,
                            int64_t count, tsr_tensor **out)
{
    tsr_tensor *own = NULL;
    TSR__TRY(tsr_tensor_select(of, 0, set, &own));
    TSR__TRY(tsr__temp_keep(temps, own));
    return tsr__temp_slice(temps, own, dim, at, count, out);
}

static tsr_status copy_part(const tsr__adapter *adapter, tsr__temps *temps, int index,
                            const struct tsr__adapter_bank *bank)
{
    const tsr__adapted *part = &adapter->part[index];
    const struct tsr__adapter_bank_block *block = &bank->block[part->block];
    const int set = adapter->choice->number;
    tsr_stream *stream = adapter->base.stream;
    tsr_tensor *to, *from = adapter->base.parameter[part->b]->seen.tensor;
    TSR__TRY(tsr__parameter_require(&adapter->base, part->a));
    TSR__TRY(tsr__parameter_require(&adapter->base, part->b));
    TSR__TRY(matrix_of(temps, bank->a, set, 0, block->at, part->rank, &to));
    TSR__TRY(tsr_copy(stream, to, adapter->base.parameter[part->a]->seen.tensor));
    if (!block->b)
        return TSR_OK;
    if (!adapter->is_row) {
        const tsr__column_block *of =
            &((const tsr__column_linear *)adapter->target)->block[part->block];
        if (of->replicated)
            TSR__TRY(
                tsr__temp_slice(temps, from, 0, of->division.first, of->division.length, &from));
    }
    TSR__TRY(matrix_of(temps, block->b, set, 1, 0, part->rank, &to));
    return tsr_scale(stream, to, from, part->scale, 0);
}

static tsr_status fill(const tsr__linear *linear, const struct tsr__adapter_bank *bank)
{
    tsr__temps temps = {.stream = linear->base.stream};
    tsr_status status = TSR_OK;
    for (const tsr__adapter *a = linear->base.adapters; a; a = a->next)
        for (int i = 0; status == TSR_OK && i < a->count; i++)
            status = copy_part(a, &temps, i, bank);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status need_bank(const tsr__linear *linear)
{
    tsr_layer *layer = (tsr_layer *)&linear->base;
    const tsr__adapter_choice *choice = layer->adapters->choice;
    if (layer->adapter_bank && layer->adapter_bank->version == choice->version)
        return TSR_OK;
    tsr__adapter_bank_drop(layer);
    layer->adapter_bank = tsr__calloc(1, sizeof *layer->adapter_bank);
    if (!layer->adapter_bank)
        return TSR_ERR_NO_MEMORY;
    layer->adapter_bank->version = choice->version;
    tsr_status status = allocate(linear, choice->count, layer->adapter_bank);
    if (status == TSR_OK)
        status = fill(linear, layer->adapter_bank);
    if (status != TSR_OK)
        tsr__adapter_bank_drop(layer);
    return status;
}

/* Products ----------------------------------------------------------------------------------- */

/* Gives a matrix [rows, n] the shape [rows, 1, n]. */
static tsr_status as_pairs(tsr__temps *temps, const tsr_tensor *matrix, tsr_tensor **out)
{
    tsr_layout layout = *tsr_tensor_layout(matrix);
    layout.ndim = 3;
    layout.shape[2] = layout.shape[1];
    layout.strides[2] = layout.strides[1];
    layout.shape[1] = 1;
    layout.strides[1] = layout.strides[0];
    TSR__TRY(tsr_tensor_view(matrix, &layout, out));
    return tsr__temp_keep(temps, *out);
}

tsr_status tsr__adapter_rows_find(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr_tensor *x2, tsr__adapter_terms *terms)
{
    const tsr__adapter_choice *choice = linear->base.adapters->choice;
    tsr_tensor *h, *pairs, *columns;
    TSR__TRY(need_bank(linear));
    const struct tsr__adapter_bank *bank = linear->base.adapter_bank;
    const int64_t rows = tsr_tensor_layout(x2)->shape[0],
                  shape[2] = {rows, tsr_tensor_layout(bank->a)->shape[1]};
    TSR__REQUIRE(tsr_tensor_layout(choice->ids)->shape[0] == rows,
                 "%s: x has %lld rows, but %lld rows have adapters", linear->base.who,
                 (long long)rows, (long long)tsr_tensor_layout(choice->ids)->shape[0]);
    terms->term = tsr__calloc(TSR__MAX_ADAPTED, sizeof *terms->term);
    if (!terms->term)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, shape, &h));
    TSR__TRY(as_pairs(temps, h, &pairs));
    TSR__TRY(tsr_matmul_grouped(linear->base.stream, pairs, x2, bank->a, choice->ids, NULL));
    for (int i = 0; i < TSR__MAX_ADAPTED; i++) {
        const struct tsr__adapter_bank_block *block = &bank->block[i];
        if (!block->b)
            continue;
        TSR__TRY(tsr__temp_slice(temps, h, 1, block->at, block->rank, &columns));
        terms->term[terms->count++] = (tsr__adapter_term){.h = columns,
                                                          .b = block->b,
                                                          .ids = choice->ids,
                                                          .first = block->first,
                                                          .count = block->count};
    }
    return TSR_OK;
}

tsr_status tsr__adapter_rows_add(const tsr__linear *linear, tsr__temps *temps,
                                 const tsr__adapter_term *term, tsr_tensor *y2)
{
    tsr_tensor *y, *pairs;
    TSR__TRY(tsr__temp_slice(temps, y2, 1, term->first, term->count, &y));
    TSR__TRY(as_pairs(temps, y, &pairs));
    return tsr_matmul_grouped(linear->base.stream, pairs, term->h, term->b, term->ids,
                              tsr_matmul_grouped_params(.accumulate = true));
}
