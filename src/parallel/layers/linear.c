/* Creates linear layers. Checks their params, divides their sizes among the ranks, and allocates
 * their parameters. */
#include "parallel/layers/linear.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define MAX_OVERLAP_PARTS 16

static void finish(tsr_layer *layer)
{
    tsr__linear *linear = (tsr__linear *)layer;
    for (int p = 0; p < TSR__MAX_LINEAR_PARTS; p++)
        tsr__free(linear->part_sizes[p]);
    tsr__free(linear->sizes);
    tsr__free(linear->other_sizes);
}

static const tsr__layer_type column_linear = {
    "column_linear", tsr__column_forward, tsr__column_backward, finish, NULL, NULL};
static const tsr__layer_type row_linear = {
    "row_linear", tsr__row_forward, tsr__row_backward, finish, NULL, tsr__row_forward_added};

/* Layouts ------------------------------------------------------------------------------------ */

static const char *layout_name(tsr_layer_layout layout)
{
    static const char *const names[] = {"DEFAULT", "FULL", "SHARDED", "GATHER", "SEQUENCE"};
    return (unsigned)layout < sizeof names / sizeof *names ? names[layout] : "?";
}

/* Returns the given layout, or the first supported layout if it is DEFAULT. `there` lists the
 * supported layouts and ends with 0. */
static tsr_status choose_layout(const tsr_layer *layer, const char *what, tsr_layer_layout given,
                                const tsr_layer_layout *there, tsr_layer_layout *out)
{
    if (given == TSR_LAYOUT_DEFAULT)
        given = there[0];
    for (int i = 0; there[i] != TSR_LAYOUT_DEFAULT; i++)
        if (there[i] == given) {
            *out = given;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID, "%s: unsupported %s layout %s (%d)", layer->who, what,
                     layout_name(given), (int)given);
}

static tsr_status choose_layouts(tsr__linear *linear, const tsr_linear_params *params)
{
    static const tsr_layer_layout there[2][2][4] = {
        {{TSR_LAYOUT_FULL, TSR_LAYOUT_GATHER, TSR_LAYOUT_SEQUENCE},
         {TSR_LAYOUT_SHARDED, TSR_LAYOUT_FULL}},
        {{TSR_LAYOUT_SHARDED, TSR_LAYOUT_FULL, TSR_LAYOUT_GATHER},
         {TSR_LAYOUT_FULL, TSR_LAYOUT_SHARDED, TSR_LAYOUT_SEQUENCE}}};
    const tsr_layer *layer = &linear->base;
    TSR__TRY(choose_layout(layer, "input", params->input, there[linear->row][0], &linear->input));
    TSR__TRY(
        choose_layout(layer, "output", params->output, there[linear->row][1], &linear->output));
    bool divides = linear->input == TSR_LAYOUT_SEQUENCE || linear->output == TSR_LAYOUT_SEQUENCE;
    return divides ? tsr__layer_check_sequence_dim(layer, params->sequence_dim) : TSR_OK;
}

/* Parts -------------------------------------------------------------------------------------- */

static tsr_status divide(tsr__linear *linear, const tsr_linear_params *params)
{
    const tsr_layer *layer = &linear->base;
    const char *in = "input_size", *out = "output_size";
    TSR__TRY(tsr__layer_partition(layer, linear->row ? in : out,
                                  linear->row ? linear->input_size : linear->output_size,
                                  "partition", &params->partition, &linear->sizes, &linear->first));
    linear->length = linear->sizes[layer->rank];
    bool gathers = linear->input == TSR_LAYOUT_GATHER;
    bool scatters = linear->row && linear->output == TSR_LAYOUT_SHARDED;
    TSR__REQUIRE(!gathers || !scatters,
                 "%s: a GATHER input and a SHARDED output cannot be combined", layer->who);
    if (!gathers && !scatters)
        return TSR_OK;
    TSR__TRY(tsr__layer_partition(
        layer, gathers ? in : out, gathers ? linear->input_size : linear->output_size,
        "other_partition", &params->other_partition, &linear->other_sizes, &linear->other_first));
    linear->same_split =
        gathers && linear->row &&
        memcmp(linear->sizes, linear->other_sizes, (size_t)layer->size * sizeof(int64_t)) == 0;
    return TSR_OK;
}

tsr_status tsr__linear_check(const tsr_layer *layer, const tsr_linear_params *params)
{
    tsr_dtype dtype;
    TSR__REQUIRE(params->overlap_parts >= 0 && params->overlap_parts <= MAX_OVERLAP_PARTS,
                 "%s: overlap_parts is %d; 0 to %d are possible", layer->who, params->overlap_parts,
                 MAX_OVERLAP_PARTS);
    TSR__REQUIRE((unsigned)params->init.kind <= TSR_INIT_NONE, "%s: init %d is not a tsr_init",
                 layer->who, (int)params->init.kind);
    TSR__TRY(tsr__layer_dtype(layer, "dtype", params->dtype, &dtype));
    return tsr__layer_dtype(layer, "grad_dtype", params->grad_dtype, &dtype);
}

static tsr_status take_params(tsr__linear *linear, const tsr_linear_params *params)
{
    const tsr_layer *layer = &linear->base;
    TSR__REQUIRE(params->input_size >= 1 && params->output_size >= 1 &&
                     params->input_size <= INT32_MAX && params->output_size <= INT32_MAX,
                 "%s: input_size is %lld, output_size %lld; both must be 1 to 2^31 - 1", layer->who,
                 (long long)params->input_size, (long long)params->output_size);
    TSR__TRY(tsr__linear_check(layer, params));
    linear->input_size = params->input_size;
    linear->output_size = params->output_size;
    linear->has_bias = !params->no_bias;
    linear->reduce_f32 = params->reduce_f32;
    linear->overlap_parts = params->overlap_parts;
    linear->sequence_dim = params->sequence_dim;
    TSR__TRY(choose_layouts(linear, params));
    return divide(linear, params);
}

/* Parameters --------------------------------------------------------------------------------- */

/* Adds the parameters of one part of a column-parallel layer. If `part` is NULL, adds the
 * parameters of a row-parallel layer. */
static tsr_status add_parameters(tsr__linear *linear, const tsr_linear_params *params,
                                 const char *prefix, const tsr__column_part *part)
{
    tsr_layer *layer = &linear->base;
    char name[64];
    const int64_t output_size = part ? part->output_size : linear->output_size;
    tsr__parameter_spec spec = {
        .name = name,
        .ndim = 2,
        .shape = {output_size, linear->input_size},
        .shard_dim = linear->row        ? 1
                     : part->replicated ? -1
                                        : 0,
        .first = part ? part->first : linear->first,
        .sizes = part ? part->sizes : linear->sizes,
        .init = params->init,
        .fan_in = linear->input_size,
        .fan_out = output_size,
    };
    TSR__TRY(tsr__layer_dtype(layer, "dtype", params->dtype, &spec.dtype));
    TSR__TRY(tsr__layer_dtype(layer, "grad_dtype", params->grad_dtype, &spec.grad_dtype));
    snprintf(name, sizeof name, "%s%sweight", prefix, *prefix ? "." : "");
    TSR__TRY(tsr__parameter_add(layer, &spec));
    if (!linear->has_bias)
        return TSR_OK;
    snprintf(name, sizeof name, "%s%sbias", prefix, *prefix ? "." : "");
    spec.ndim = 1;
    spec.shape[1] = 0;
    spec.shard_dim = linear->row || part->replicated ? -1 : 0;
    spec.bias = true;
    return tsr__parameter_add(layer, &spec);
}

/* Allocates one tensor for the weights (`which` is 0) or biases (1) of all parts. Each part gets a
 * view of this tensor. */
static tsr_status allocate_joint(tsr__linear *linear, int which)
{
    tsr_layer *layer = &linear->base;
    const tsr__layer_parameter *first = &layer->parameter[which];
    int64_t shape[2], at = 0;
    tsr__parameter_shape(first, shape);
    shape[0] = 0;
    for (int p = 0; p < linear->parts; p++)
        shape[0] += tsr__part_rows(&linear->part[p]);
    tsr_tensor *joint = NULL;
    tsr_status status =
        tsr_tensor_create(layer->device, first->seen.dtype, first->seen.ndim, shape, &joint);
    for (int p = 0; status == TSR_OK && p < linear->parts; p++) {
        tsr__layer_parameter *parameter = &layer->parameter[tsr__weight_of(linear, p) + which];
        const int64_t rows = tsr__part_rows(&linear->part[p]);
        status = tsr_tensor_slice(joint, 0, at, at + rows, 1, &parameter->seen.tensor);
        if (status == TSR_OK)
            status = tsr__initial_fill(parameter, layer->stream, parameter->seen.tensor);
        at += rows;
    }
    tsr_tensor_destroy(&joint);
    return status;
}

static tsr_status allocate(tsr__linear *linear)
{
    tsr_layer *layer = &linear->base;
    if (linear->parts > 1) {
        TSR__TRY(allocate_joint(linear, 0));
        return linear->has_bias ? allocate_joint(linear, 1) : TSR_OK;
    }
    for (int i = 0; i < layer->parameter_count; i++)
        TSR__TRY(tsr__parameter_allocate(layer, i));
    return TSR_OK;
}

/* Creating ----------------------------------------------------------------------------------- */

/* Stores the parts of a column-parallel layer. Each part has sizes of its own or uses those of the
 * layer. */
static tsr_status set_parts(tsr__linear *linear, int count, const tsr__column_part *parts)
{
    const size_t bytes = (size_t)linear->base.size * sizeof(int64_t);
    linear->parts = count;
    for (int p = 0; p < count; p++) {
        tsr__column_part *part = &linear->part[p];
        *part = parts[p];
        if (!part->sizes && !part->replicated) {
            part->output_size = linear->output_size;
            part->sizes = linear->sizes;
            part->first = linear->first;
            part->length = linear->length;
        } else if (part->sizes) {
            linear->part_sizes[p] = tsr__calloc(1, bytes);
            if (!linear->part_sizes[p])
                return TSR_ERR_NO_MEMORY;
            memcpy(linear->part_sizes[p], part->sizes, bytes);
            part->sizes = linear->part_sizes[p];
        }
        part->at = linear->features;
        linear->features += part->length;
    }
    return TSR_OK;
}

static tsr_status fill_column(tsr__linear *linear, const tsr_linear_params *params, int count,
                              const tsr__column_part *parts)
{
    TSR__TRY(take_params(linear, params));
    TSR__TRY(set_parts(linear, count, parts));
    for (int p = 0; p < count; p++)
        TSR__TRY(add_parameters(linear, params, parts[p].name, &linear->part[p]));
    return params->deferred ? TSR_OK : allocate(linear);
}

static tsr_status fill_row(tsr__linear *linear, const tsr_linear_params *params, const char *name)
{
    linear->row = true;
    linear->parts = 1;
    TSR__TRY(take_params(linear, params));
    TSR__TRY(add_parameters(linear, params, name, NULL));
    return params->deferred ? TSR_OK : allocate(linear);
}

static tsr_status begin(const tsr__layer_type *type, const tsr_linear_params *params,
                        tsr_layer **out, tsr_layer **layer)
{
    TSR__REQUIRE(params && out, "%s: %s is NULL", type->name, params ? "out" : "params");
    return tsr__layer_new(type, sizeof(tsr__linear), params->group, params->name, layer);
}

/* Returns the layer to the caller. If `status` is an error, destroys the layer instead. */
static tsr_status end(tsr_status status, tsr_layer *layer, tsr_layer **out)
{
    if (status == TSR_OK)
        *out = layer;
    else
        tsr_layer_destroy(&layer);
    return status;
}

tsr_status tsr__column_create(const tsr_linear_params *params, int count,
                              const tsr__column_part *parts, tsr_layer **out)
{
    tsr_layer *layer;
    TSR__TRY(begin(&column_linear, params, out, &layer));
    return end(fill_column((tsr__linear *)layer, params, count, parts), layer, out);
}

tsr_status tsr__row_create(const tsr_linear_params *params, const char *part, tsr_layer **out)
{
    tsr_layer *layer;
    TSR__TRY(begin(&row_linear, params, out, &layer));
    return end(fill_row((tsr__linear *)layer, params, part), layer, out);
}

tsr_status tsr_column_linear_create(const tsr_linear_params *params, tsr_layer **out)
{
    return tsr__column_create(params, 1, &(tsr__column_part){.name = ""}, out);
}

tsr_status tsr_row_linear_create(const tsr_linear_params *params, tsr_layer **out)
{
    return tsr__row_create(params, "", out);
}

/* Inspection --------------------------------------------------------------------------------- */

static const tsr__linear *as_linear(const tsr_layer *layer)
{
    bool is = layer && (layer->type == &column_linear || layer->type == &row_linear);
    return is ? (const tsr__linear *)layer : NULL;
}

tsr_tensor *tsr_linear_local_weight(const tsr_layer *layer)
{
    return as_linear(layer) ? layer->parameter[0].seen.tensor : NULL;
}

tsr_tensor *tsr_linear_local_bias(const tsr_layer *layer)
{
    const tsr__linear *linear = as_linear(layer);
    return linear && linear->has_bias ? layer->parameter[1].seen.tensor : NULL;
}

tsr_status tsr_linear_local_shape(const tsr_layer *layer, int64_t *rows, int64_t *columns)
{
    const tsr__linear *linear = as_linear(layer);
    TSR__REQUIRE(layer, "linear_local_shape: layer is NULL");
    TSR__REQUIRE(linear, "%s: it is not a linear layer", layer->who);
    TSR__REQUIRE(rows && columns, "linear_local_shape: %s is NULL", rows ? "columns" : "rows");
    *rows = linear->row ? linear->output_size : linear->length;
    *columns = linear->row ? linear->length : linear->input_size;
    return TSR_OK;
}
