/* Reads the weights of a sharded stack from files: of each parameter the rows that contain what
 * this rank keeps of it. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/convert/config.h"
#include "model/file.h"
#include "model/stack/stack.h"
#include "model/weights/reader.h"
#include "model/weights/weights.h"

typedef struct loading {
    tsr_stack *stack;
    const tsr__weights *weights;
    bool lacks_biases; /* the files have no biases for the choice of experts */
    tsr__weight_reader reader;
} loading;

/* Returns the smallest range of rows of a part that contains elements start … start + count − 1.
 * The rows of a head whose order changes stay together. */
static tsr__weight_part rows_with(const tsr__weight *w, const tsr__weight_part *part,
                                  const tsr_shard_range *range)
{
    const int64_t unit = w->interleaved_head > 0 ? w->interleaved_head : 1,
                  start = (int64_t)range->start, end = start + (int64_t)range->count,
                  first = start / part->columns / unit * unit,
                  last = ((end - 1) / part->columns / unit + 1) * unit;
    return (tsr__weight_part){.first_row = part->first_row + first,
                              .rows = (last < part->rows ? last : part->rows) - first,
                              .first_column = part->first_column,
                              .columns = part->columns};
}

/* Copies elements `skip` … of rows to a shard. */
static tsr_status copy_elements(const loading *l, const tsr_tensor *rows, int64_t skip,
                                tsr_tensor *shard)
{
    const tsr_layout *layout = tsr_tensor_layout(rows);
    const int64_t all = layout->shape[0] * layout->shape[1],
                  count = tsr_tensor_layout(shard)->shape[0];
    tsr_tensor *flat = NULL, *some = NULL;
    tsr_status status = tsr_tensor_reshape(rows, 1, &all, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_slice(flat, 0, skip, skip + count, 1, &some);
    if (status == TSR_OK)
        status = tsr_copy(l->stack->stream, shard, some);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&some);
    return status;
}

static tsr_status load_shard(loading *l, const tsr__weight *w, const tsr__weight_part *part,
                             const tsr_fsdp_shard *shard)
{
    const tsr__weight_part rows = rows_with(w, part, &shard->range);
    const int64_t shape[2] = {rows.rows, rows.columns},
                  skip = (int64_t)shard->range.start -
                         (rows.first_row - part->first_row) * part->columns;
    tsr_tensor *read = NULL;
    TSR__TRY(tsr_tensor_create(l->stack->device, tsr_tensor_layout(shard->value)->dtype, 2, shape,
                               &read));
    tsr_status status = tsr__weight_read(&l->reader, w, &rows, read);
    if (status == TSR_OK)
        status = tsr__weight_read_rest(&l->reader);
    if (status == TSR_OK)
        status = copy_elements(l, read, skip, shard->value);
    /* The memory may be used again only when the device has read it. */
    if (status == TSR_OK)
        status = tsr_stream_wait(l->stack->stream);
    tsr_tensor_destroy(&read);
    return status;
}

static tsr_status fill_with_zeros(const loading *l, const tsr__stack_parameter *p)
{
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    TSR__TRY(tsr_fsdp_get_shard(p->sharded, p->number, &shard));
    return shard.value && shard.range.count > 0 ? tsr_fill(l->stack->stream, shard.value, 0)
                                                : TSR_OK;
}

/* Reads what this rank keeps of the experts in `part`: of each expert a range of its elements. */
static tsr_status load_experts(loading *l, const tsr__stack_parameter *p,
                               const tsr__weight_part *part, const tsr_fsdp_shard *shard)
{
    const uint64_t each = (uint64_t)(part->rows * part->columns), start = shard->range.start,
                   end = start + shard->range.count;
    for (uint64_t e = start / each; e * each < end; e++) {
        const uint64_t from = tsr__max_u64(start, e * each), to = tsr__min_u64(end, (e + 1) * each);
        tsr_fsdp_shard own = *shard;
        tsr__weight weight;
        TSR__TRY(tsr__weight_find_expert(l->weights, p->layer, p->ours,
                                         part->first_expert + (int64_t)e, &weight));
        own.range = (tsr_shard_range){.start = from - e * each, .count = to - from};
        TSR__TRY(tsr_tensor_slice(shard->value, 0, (int64_t)(from - start), (int64_t)(to - start),
                                  1, &own.value));
        const tsr_status status = load_shard(l, &weight, part, &own);
        tsr_tensor_destroy(&own.value);
        TSR__TRY(status);
    }
    return TSR_OK;
}

static tsr_status load_one(void *user, const tsr__stack_parameter *p)
{
    loading *l = user;
    tsr__weight weight;
    tsr__weight_part part;
    tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
    if (l->lacks_biases && strcmp(p->ours, "mlp.router.choice_bias") == 0)
        return fill_with_zeros(l, p);
    TSR__TRY(tsr__weight_of(l->weights, p->layer, p->ours, p->parameter, &weight, &part));
    TSR__TRY(tsr_fsdp_get_shard(p->sharded, p->number, &shard));
    if (!shard.value || shard.range.count == 0)
        return TSR_OK;
    return part.of_experts ? load_experts(l, p, &part, &shard)
                           : load_shard(l, &weight, &part, &shard);
}

static tsr_status load_all(loading *l, const tsr__model_files *files)
{
    tsr_stack *s = l->stack;
    tsr__weight_reader_init(files, s->stream, tsr_comm_local_size(tsr_group_comm(s->group)),
                            &l->reader);
    tsr_status status = tsr__stack_each(s, load_one, l);
    tsr__weight_reader_finish(&l->reader);
    if (status == TSR_OK && s->tied)
        status = tsr_fsdp_changed(s->tied);
    if (status == TSR_OK && s->frozen)
        status = tsr_fsdp_changed(s->frozen);
    return status == TSR_OK ? tsr_fsdp_changed(s->sharded) : status;
}

/* Compares the configuration of the files with that of the stack, except that files may lack biases
 * for the choice of experts. */
static tsr_status compare_configs(const tsr_stack *s, const tsr_model_file *file,
                                  bool *lacks_biases)
{
    const tsr_model_experts *experts = tsr__config_experts(&file->config->public);
    tsr__config *own = NULL;
    TSR__TRY(tsr__config_copy(s->config, &own));
    *lacks_biases = experts && !experts->choice_bias && tsr__config_clear_choice_biases(own);
    const tsr_status status = tsr__config_compare(&own->public, &file->config->public, NULL);
    tsr__free(own);
    return status;
}

tsr_status tsr_stack_load(tsr_stack *stack, const tsr_model_file *file)
{
    loading l = {.stack = stack};
    TSR__REQUIRE(stack && file, "stack: %s is NULL", stack ? "file" : "stack");
    TSR__REQUIRE(stack->sharded, "stack: the parameters are not sharded");
    TSR__TRY(compare_configs(stack, file, &l.lacks_biases));
    TSR__TRY(tsr__model_file_weights(file, &l.weights));
    return load_all(&l, &file->files);
}
