/* Creates linear layers: checks the params, divides features among the ranks, and allocates the
 * parameters. */
#include "parallel/layers/linear.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/internal.h"

static void finish_column(tsr_layer *layer)
{
    tsr__column_linear *column = (tsr__column_linear *)layer;
    for (int i = 0; column->block && i < column->block_count; i++)
        tsr__free(column->block[i].division.sizes);
    tsr__free(column->block);
    tsr__free(column->input_division.sizes);
}

static void finish_row(tsr_layer *layer)
{
    tsr__row_linear *row = (tsr__row_linear *)layer;
    tsr__free(row->weight_division.sizes);
    tsr__free(row->input_division.sizes);
    tsr__free(row->output_division.sizes);
}

static const tsr__layer_type column_linear = {.name = "column_linear",
                                              .forward = tsr__column_forward,
                                              .backward = tsr__column_backward,
                                              .finish = finish_column};
static const tsr__layer_type row_linear = {.name = "row_linear",
                                           .forward = tsr__row_forward,
                                           .backward = tsr__row_backward,
                                           .finish = finish_row,
                                           .forward_added = tsr__row_forward_added};

/* Layouts ------------------------------------------------------------------------------------ */

static const char *layout_name(tsr_layer_layout layout)
{
    static const char *const names[] = {"DEFAULT", "FULL", "SHARDED", "GATHER", "SEQUENCE"};
    return (unsigned)layout < sizeof names / sizeof *names ? names[layout] : "?";
}

/* Returns the given layout, or the first supported layout if the given one is DEFAULT. `supported`
 * ends with 0. */
static tsr_status choose_layout(const tsr_layer *layer, const char *what, tsr_layer_layout given,
                                const tsr_layer_layout *supported, tsr_layer_layout *out)
{
    if (given == TSR_LAYOUT_DEFAULT)
        given = supported[0];
    for (int i = 0; supported[i] != TSR_LAYOUT_DEFAULT; i++)
        if (supported[i] == given) {
            *out = given;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID, "%s: unsupported %s layout %s (%d)", layer->who, what,
                     layout_name(given), (int)given);
}

/* The supported layouts of x and y. */
typedef struct supported_layouts {
    tsr_layer_layout input[4], output[4];
} supported_layouts;
static const supported_layouts column_layouts = {
    {TSR_LAYOUT_FULL, TSR_LAYOUT_GATHER, TSR_LAYOUT_SEQUENCE},
    {TSR_LAYOUT_SHARDED, TSR_LAYOUT_FULL}};
static const supported_layouts row_layouts = {
    {TSR_LAYOUT_SHARDED, TSR_LAYOUT_FULL, TSR_LAYOUT_GATHER},
    {TSR_LAYOUT_FULL, TSR_LAYOUT_SHARDED, TSR_LAYOUT_SEQUENCE}};

static tsr_status choose_layouts(tsr__linear *linear, const tsr_linear_params *params,
                                 const supported_layouts *supported)
{
    const tsr_layer *layer = &linear->base;
    TSR__TRY(choose_layout(layer, "input", params->input, supported->input, &linear->input));
    TSR__TRY(choose_layout(layer, "output", params->output, supported->output, &linear->output));
    bool divides = linear->input == TSR_LAYOUT_SEQUENCE || linear->output == TSR_LAYOUT_SEQUENCE;
    return divides ? tsr__layer_check_sequence_dim(layer, params->sequence_dim) : TSR_OK;
}

/* Params ------------------------------------------------------------------------------------- */

tsr_status tsr__linear_check(const tsr_layer *layer, const tsr_linear_params *params)
{
    tsr_init_params init;
    tsr_dtype dtype;
    TSR__REQUIRE(params->overlap_parts >= 0 && params->overlap_parts <= TSR__MAX_OVERLAP_CHUNKS,
                 "%s: overlap_parts is %d; 0 to %d are possible", layer->who, params->overlap_parts,
                 TSR__MAX_OVERLAP_CHUNKS);
    TSR__TRY(tsr__layer_init(layer, "init", params->init, &init));
    TSR__TRY(tsr__layer_dtype(layer, "dtype", params->dtype, &dtype));
    return tsr__layer_dtype(layer, "grad_dtype", params->grad_dtype, &dtype);
}

static tsr_status take_params(tsr__linear *linear, const tsr_linear_params *params,
                              const supported_layouts *supported)
{
    const tsr_layer *layer = &linear->base;
    TSR__REQUIRE(params->input_size >= 1 && params->output_size >= 1 &&
                     params->input_size <= INT32_MAX && params->output_size <= INT32_MAX,
                 "%s: input_size is %lld, output_size %lld; both must be 1 to 2^31 - 1", layer->who,
                 (long long)params->input_size, (long long)params->output_size);
    TSR__TRY(tsr__linear_check(layer, params));
    linear->input_size = params->input_size;
    linear->has_bias = params->bias;
    linear->reduce_f32 = params->reduce_f32;
    linear->sequence_dim = params->sequence_dim;
    return choose_layouts(linear, params, supported);
}

/* Parameters --------------------------------------------------------------------------------- */

/* Adds a weight and, if the layer has biases, a bias. shard_dim is that of the weight (-1: every
 * rank has the full weight). */
static tsr_status add_parameters(tsr__linear *linear, const tsr_linear_params *params,
                                 const char *prefix, int64_t output_size, int shard_dim,
                                 const tsr__division *division)
{
    tsr_layer *layer = &linear->base;
    char name[64];
    tsr__parameter_spec spec = {
        .name = name,
        .ndim = 2,
        .shape = {output_size, linear->input_size},
        .shard_dim = shard_dim,
        .division = division,
        .fan_in = linear->input_size,
        .fan_out = output_size,
    };
    TSR__TRY(tsr__layer_init(layer, "init", params->init, &spec.init));
    TSR__TRY(tsr__layer_dtype(layer, "dtype", params->dtype, &spec.dtype));
    TSR__TRY(tsr__layer_dtype(layer, "grad_dtype", params->grad_dtype, &spec.grad_dtype));
    snprintf(name, sizeof name, "%s%sweight", prefix, *prefix ? "." : "");
    TSR__TRY(tsr__parameter_add(layer, &spec));
    if (!linear->has_bias)
        return TSR_OK;
    snprintf(name, sizeof name, "%s%sbias", prefix, *prefix ? "." : "");
    spec.ndim = 1;
    spec.shape[1] = 0;
    spec.shard_dim = shard_dim == 0 ? 0 : -1;
    spec.bias = true;
    return tsr__parameter_add(layer, &spec);
}

static tsr_status allocate_each(tsr_layer *layer)
{
    for (int i = 0; i < layer->parameter_count; i++)
        TSR__TRY(tsr__parameter_allocate(layer, i));
    return TSR_OK;
}

/* Allocates one tensor for the weights or biases of all blocks. Each block gets a view of this
 * tensor. */
static tsr_status allocate_joint(tsr__column_linear *column, tsr__weight_or_bias which)
{
    tsr_layer *layer = &column->linear.base;
    const tsr__layer_parameter *first = layer->parameter[which];
    int64_t shape[TSR__PARAMETER_DIMS], start = 0;
    tsr__parameter_shape(first, shape);
    shape[0] = 0;
    for (int i = 0; i < column->block_count; i++)
        shape[0] += tsr__block_rows(&column->block[i]);
    tsr_tensor *joint = NULL;
    tsr_status status =
        tsr_tensor_create(layer->device, first->seen.dtype, first->seen.ndim, shape, &joint);
    for (int i = 0; status == TSR_OK && i < column->block_count; i++) {
        tsr__layer_parameter *parameter = layer->parameter[tsr__block_parameter(column, i, which)];
        const int64_t rows = tsr__block_rows(&column->block[i]);
        status = tsr_tensor_slice(joint, 0, start, start + rows, 1, &parameter->seen.tensor);
        if (status == TSR_OK)
            status = tsr__initial_fill(parameter, layer->stream, parameter->seen.tensor);
        start += rows;
    }
    tsr_tensor_destroy(&joint);
    return status;
}

static tsr_status allocate_column(tsr__column_linear *column)
{
    if (column->block_count == 1)
        return allocate_each(&column->linear.base);
    TSR__TRY(allocate_joint(column, TSR__WEIGHT));
    return column->linear.has_bias ? allocate_joint(column, TSR__BIAS) : TSR_OK;
}

/* Column-parallel layers --------------------------------------------------------------------- */

/* Copies the description of a block into the layer, and divides the block's features if they have
 * no division yet. */
static tsr_status set_block(tsr__column_linear *column, const tsr_linear_params *params, int index,
                            const tsr__column_block *given)
{
    const tsr_layer *layer = &column->linear.base;
    tsr__column_block *block = &column->block[index];
    *block = *given;
    block->division.sizes = NULL;
    if (given->division.sizes) {
        const size_t bytes = (size_t)layer->size * sizeof(int64_t);
        block->division.sizes = tsr__calloc(1, bytes);
        if (!block->division.sizes)
            return TSR_ERR_NO_MEMORY;
        memcpy(block->division.sizes, given->division.sizes, bytes);
    } else if (!given->replicated) {
        block->output_size = params->output_size;
        TSR__TRY(tsr__layer_partition(layer, "output_size", block->output_size, "partition",
                                      params->partition, &block->division));
    }
    block->start = column->features;
    column->features += block->division.length;
    column->linear.output_size += block->output_size;
    return TSR_OK;
}

static tsr_status init_column(tsr__column_linear *column, const tsr_linear_params *params,
                              int count, const tsr__column_block *blocks)
{
    tsr__linear *linear = &column->linear;
    TSR__TRY(take_params(linear, params, &column_layouts));
    column->block = tsr__calloc((size_t)count, sizeof *column->block);
    if (!column->block)
        return TSR_ERR_NO_MEMORY;
    column->block_count = count;
    for (int i = 0; i < count; i++)
        TSR__TRY(set_block(column, params, i, &blocks[i]));
    if (linear->input == TSR_LAYOUT_GATHER)
        TSR__TRY(tsr__layer_partition(&linear->base, "input_size", linear->input_size,
                                      "other_partition", params->other_partition,
                                      &column->input_division));
    for (int i = 0; i < count; i++) {
        const tsr__column_block *block = &column->block[i];
        TSR__TRY(add_parameters(linear, params, block->name, block->output_size,
                                block->replicated ? -1 : 0, &block->division));
    }
    return params->deferred ? TSR_OK : allocate_column(column);
}

/* Row-parallel layers ------------------------------------------------------------------------ */

static tsr_status divide_row(tsr__row_linear *row, const tsr_linear_params *params)
{
    const tsr__linear *linear = &row->linear;
    const tsr_layer *layer = &linear->base;
    TSR__TRY(tsr__layer_partition(layer, "input_size", linear->input_size, "partition",
                                  params->partition, &row->weight_division));
    const bool gathers = linear->input == TSR_LAYOUT_GATHER;
    const bool scatters = linear->output == TSR_LAYOUT_SHARDED;
    TSR__REQUIRE(!gathers || !scatters,
                 "%s: a GATHER input and a SHARDED output cannot be combined", layer->who);
    if (scatters)
        return tsr__layer_partition(layer, "output_size", linear->output_size, "other_partition",
                                    params->other_partition, &row->output_division);
    if (!gathers)
        return TSR_OK;
    TSR__TRY(tsr__layer_partition(layer, "input_size", linear->input_size, "other_partition",
                                  params->other_partition, &row->input_division));
    row->same_division = memcmp(row->weight_division.sizes, row->input_division.sizes,
                                (size_t)layer->size * sizeof(int64_t)) == 0;
    return TSR_OK;
}

static tsr_status init_row(tsr__row_linear *row, const tsr_linear_params *params,
                           const char *prefix)
{
    tsr__linear *linear = &row->linear;
    TSR__TRY(take_params(linear, params, &row_layouts));
    linear->output_size = params->output_size;
    row->overlap_chunks = params->overlap_parts;
    TSR__TRY(divide_row(row, params));
    TSR__TRY(add_parameters(linear, params, prefix, linear->output_size, 1, &row->weight_division));
    return params->deferred ? TSR_OK : allocate_each(&linear->base);
}

/* Creating ----------------------------------------------------------------------------------- */

static tsr_status new_layer(const tsr__layer_type *type, size_t size,
                            const tsr_linear_params *params, tsr_layer **out, tsr_layer **layer)
{
    TSR__REQUIRE(out, "%s: out is NULL", type->name);
    return tsr__layer_new(type, size, params->group, params->name, layer);
}

/* Returns the layer to the caller. If `status` is an error, destroys the layer instead. */
static tsr_status return_layer(tsr_status status, tsr_layer *layer, tsr_layer **out)
{
    if (status == TSR_OK)
        *out = layer;
    else
        tsr_layer_destroy(&layer);
    return status;
}

tsr_status tsr__column_create(const tsr_linear_params *params, int count,
                              const tsr__column_block *blocks, tsr_layer **out)
{
    tsr_layer *layer;
    TSR__TRY(new_layer(&column_linear, sizeof(tsr__column_linear), params, out, &layer));
    return return_layer(init_column((tsr__column_linear *)layer, params, count, blocks), layer,
                        out);
}

tsr_status tsr__row_create(const tsr_linear_params *params, const char *prefix, tsr_layer **out)
{
    tsr_layer *layer;
    TSR__TRY(new_layer(&row_linear, sizeof(tsr__row_linear), params, out, &layer));
    return return_layer(init_row((tsr__row_linear *)layer, params, prefix), layer, out);
}

tsr_status tsr_column_linear_create(const tsr_linear_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params, "%s: params is NULL", column_linear.name);
    TSR__TAKE(tsr_linear_params, params);
    return tsr__column_create(params, 1, &(tsr__column_block){.name = ""}, out);
}

tsr_status tsr_row_linear_create(const tsr_linear_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params, "%s: params is NULL", row_linear.name);
    TSR__TAKE(tsr_linear_params, params);
    return tsr__row_create(params, "", out);
}

/* Inspection --------------------------------------------------------------------------------- */

static const tsr__linear *as_linear(const tsr_layer *layer)
{
    bool is_linear = layer && (layer->type == &column_linear || layer->type == &row_linear);
    return is_linear ? (const tsr__linear *)layer : NULL;
}

tsr_status tsr_linear_get_shard(const tsr_layer *layer, tsr_linear_shard *out)
{
    TSR__REQUIRE(layer && out, "linear_get_shard: %s is NULL", layer ? "out" : "layer");
    const tsr__linear *linear = as_linear(layer);
    TSR__REQUIRE(linear, "%s: it is not a linear layer", layer->who);
    const bool is_row = layer->type == &row_linear;
    const tsr_linear_shard shard = {
        .weight = layer->parameter[0]->seen.tensor,
        .bias = linear->has_bias ? layer->parameter[1]->seen.tensor : NULL,
        .rows = is_row ? linear->output_size : ((const tsr__column_linear *)layer)->features,
        .columns =
            is_row ? ((const tsr__row_linear *)layer)->weight_division.length : linear->input_size,
    };
    TSR__GIVE(tsr_linear_shard, &shard, out);
    return TSR_OK;
}

tsr_status tsr__whole_linear_create(const tsr_linear_params *params, tsr_layer **out)
{
    const tsr__column_block whole = {.name = "",
                                     .output_size = params->output_size,
                                     .division = {.length = params->output_size},
                                     .replicated = true,
                                     .whole = true};
    return tsr__column_create(params, 1, &whole, out);
}
