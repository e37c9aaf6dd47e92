#include "block.h"

#include <stdio.h>
#include <string.h>

#define WEIGHTS 3
#define NAME_SIZE (BLOCK_PREFIX_SIZE + 32)

static const struct {
    const char *in_layer, *in_file;
} weights[WEIGHTS] = {{"gate.weight", "gate_proj.weight"},
                      {"up.weight", "up_proj.weight"},
                      {"down.weight", "down_proj.weight"}};

static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};

/* Returns where the gate's own name begins in the name of its weight; NULL for any other
 * parameter. */
static const char *find_gate(const char *name)
{
    size_t length = strlen(name), own = strlen(weights[0].in_file);
    if (length < own || strcmp(name + length - own, weights[0].in_file) != 0)
        return NULL;
    return length - own < BLOCK_PREFIX_SIZE ? name + length - own : NULL;
}

static tsr_status take_sizes(const tsr_shard_param *gate, const char *own, block_sizes *out,
                             char problem[BLOCK_PROBLEM])
{
    *out = (block_sizes){0};
    memcpy(out->prefix, gate->name, (size_t)(own - gate->name));
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(gate->dtype, tsr_dtype_name(dtypes[i])) == 0)
            out->dtype = dtypes[i];
    if (gate->ndim != 2 || !out->dtype) {
        snprintf(problem, BLOCK_PROBLEM, "%s is %s with %d dimensions, not f32, f16 or bf16 with 2",
                 gate->name, gate->dtype, gate->ndim);
        return TSR_ERR_INVALID;
    }
    out->hidden = gate->shape[0];
    out->width = gate->shape[1];
    return TSR_OK;
}

tsr_status block_read_sizes(const char *path, block_sizes *out, char problem[BLOCK_PROBLEM])
{
    tsr_shard_list *list = NULL;
    tsr_status status = tsr_shard_list_open(path, &list);
    if (status != TSR_OK)
        return status;
    const tsr_shard_param *gate = NULL;
    for (uint64_t i = 0; i < tsr_shard_list_param_count(list); i++) {
        const tsr_shard_param *param = tsr_shard_list_param(list, i);
        if (find_gate(param->name) &&
            (!gate || tsr_shard_compare_names(param->name, gate->name) < 0))
            gate = param;
    }
    if (gate) {
        status = take_sizes(gate, find_gate(gate->name), out, problem);
    } else {
        snprintf(problem, BLOCK_PROBLEM, "%s has no parameter called …%s", path,
                 weights[0].in_file);
        status = TSR_ERR_NOT_FOUND;
    }
    tsr_shard_list_destroy(&list);
    return status;
}

tsr_status block_create(tsr_group *group, const block_sizes *sizes, tsr_layer **out)
{
    return tsr_mlp_create(
        tsr_mlp_params(.group = group, .input_size = sizes->width, .hidden_size = sizes->hidden,
                       .output_size = sizes->width, .gated = true, .activation = TSR_ACT_SILU,
                       .dtype = sizes->dtype,
                       .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                       .init = tsr_init_params(.kind = TSR_INIT_KAIMING_NORMAL, .seed = 7)),
        out);
}

static tsr_status describe(tsr_layer *layer, const char *prefix, char names[WEIGHTS][NAME_SIZE],
                           tsr_checkpoint_entry entries[WEIGHTS])
{
    for (int i = 0; i < WEIGHTS; i++) {
        const tsr_parameter *parameter = NULL;
        entries[i] = TSR_INIT(tsr_checkpoint_entry);
        tsr_status status = tsr_layer_find_parameter(layer, weights[i].in_layer, &parameter);
        if (status == TSR_OK)
            status = tsr_checkpoint_get_entry(parameter, &entries[i]);
        if (status != TSR_OK)
            return status;
        snprintf(names[i], NAME_SIZE, "%s%s", prefix, weights[i].in_file);
        entries[i].name = names[i];
    }
    return TSR_OK;
}

tsr_status block_load(tsr_layer *layer, const block_sizes *sizes, const char *path, tsr_comm *comm)
{
    char names[WEIGHTS][NAME_SIZE];
    tsr_checkpoint_entry entries[WEIGHTS];
    tsr_status status = describe(layer, sizes->prefix, names, entries);
    if (status != TSR_OK)
        return status;
    return tsr_checkpoint_load(path, comm, tsr_group_stream(tsr_layer_group(layer)), WEIGHTS,
                               entries, NULL);
}

tsr_status block_save(tsr_layer *layer, const char *path, tsr_comm *comm)
{
    char names[WEIGHTS][NAME_SIZE];
    tsr_checkpoint_entry entries[WEIGHTS];
    tsr_status status = describe(layer, "model.layers.0.mlp.", names, entries);
    if (status != TSR_OK)
        return status;
    return tsr_checkpoint_save(path, comm, tsr_group_stream(tsr_layer_group(layer)), WEIGHTS,
                               entries, NULL);
}
