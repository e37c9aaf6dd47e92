/* Compares frozen layers with the same layers in training, and frozen layers whose weights are in a
 * block format with those whose weights are floats. */
#include "parallel/spmd.h"

#define FEATURES 32
#define TOKENS 4

static tsr_tensor *backward(tsr_layer *layer, const tsr_tensor *x, const tsr_tensor *dy)
{
    tsr_layer_saved *saved = NULL;
    tsr_tensor *y = NULL, *dx = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    OK(tsr_layer_backward(layer, saved, dy ? dy : y, &dx));
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&y);
    return dx;
}

static void check_equal(const char *what, const tsr_tensor *a, const tsr_tensor *b)
{
    uint64_t size_bytes, other_bytes;
    uint8_t *one = bytes_of(a, &size_bytes), *other = bytes_of(b, &other_bytes);
    CHECK(size_bytes == other_bytes && memcmp(one, other, size_bytes) == 0, "%s: other bits", what);
    free(one);
    free(other);
}

static int gradients(const tsr_layer *layer)
{
    int count = 0;
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++)
        count += tsr_layer_parameter(layer, i)->grad != NULL;
    return count;
}

/* Checks a new layer: while it is frozen, it computes the same dx as in training, and no
 * gradients. */
static void check_frozen(const char *what, tsr_layer *layer, const int64_t *shape)
{
    double *values = numbers(1, count_of(3, shape), TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 3, shape, values);
    tsr_layer_set_frozen(layer, true);
    tsr_tensor *frozen = backward(layer, x, NULL);
    CHECK(gradients(layer) == 0, "%s: there are gradients", what);
    tsr_layer_set_frozen(layer, false);
    tsr_tensor *trained = backward(layer, x, NULL);
    CHECK(gradients(layer) == tsr_layer_parameter_count(layer), "%s: %d gradients", what,
          gradients(layer));
    check_equal(what, frozen, trained);

    /* Gradients that the layer already has remain. */
    tsr_tensor *kept = tensor_new(TSR_F32, tsr_layer_parameter(layer, 0)->ndim,
                                  tsr_tensor_layout(tsr_layer_parameter(layer, 0)->grad)->shape);
    OK(tsr_copy(queue, kept, tsr_layer_parameter(layer, 0)->grad));
    tsr_layer_set_frozen(layer, true);
    tsr_tensor_destroy(&frozen);
    frozen = backward(layer, x, NULL);
    check_equal(what, kept, tsr_layer_parameter(layer, 0)->grad);
    tsr_tensor_destroy(&frozen);
    tsr_tensor_destroy(&trained);
    tsr_tensor_destroy(&kept);
    tsr_tensor_destroy(&x);
    tsr_layer_destroy(&layer);
    free(values);
}

CASE(frozen_layers, "frozen layers have the same dx, and no gradients")
{
    const int64_t whole[] = {2, TOKENS, FEATURES}, part[] = {2, TOKENS, FEATURES / 4},
                  rows[] = {2, TOKENS * ranks, FEATURES};
    const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                         .kind = TSR_PARTITION_UNEVEN};
    tsr_block_params block = {
        .struct_size = sizeof block,
        .name = "b",
        .size = FEATURES,
        .norm = tsr_norm_params(.kind = TSR_NORM_RMS),
        .attention =
            tsr_self_attention_params(.heads = 4, .kv_heads = 1, .qk_norm = TSR_QK_NORM_HEADS,
                                      .partition = &uneven, .bias = true, .output_bias = true,
                                      .output_gate = true, .causal = true),
        .mlp = tsr_mlp_params(.hidden_size = 24, .gated = true, .activation = TSR_ACT_SILU,
                              .partition = &uneven, .bias = true),
    };
    tsr_layer *layer = NULL;
    OK(tsr_block_create(&block, &layer));
    check_frozen("block", layer, whole);
    block.sequence = true;
    block.sequence_dim = 1;
    block.recompute = true;
    OK(tsr_block_create(&block, &layer));
    check_frozen("block of a divided sequence", layer, whole);
    OK(tsr_delta_net_create(tsr_delta_net_params(.size = FEATURES, .key_heads = 2, .heads = 4,
                                                 .key_dim = 8, .value_dim = 8,
                                                 .partition = &uneven),
                            &layer));
    check_frozen("delta net", layer, whole);
    OK(tsr_short_conv_create(tsr_short_conv_params(.size = FEATURES, .partition = &uneven),
                             &layer));
    check_frozen("short convolution", layer, whole);
    OK(tsr_mlp_create(tsr_mlp_params(.input_size = FEATURES, .hidden_size = 24,
                                     .partition = &uneven, .output_size = FEATURES,
                                     .activation = TSR_ACT_GELU_TANH, .bias = true),
                      &layer));
    check_frozen("mlp", layer, whole);
    OK(tsr_latent_attention_create(
        tsr_latent_attention_params(.size = FEATURES, .heads = 3, .q_lora_rank = 8,
                                    .kv_lora_rank = 6, .nope_dim = 4, .rope_dim = 4, .value_dim = 5,
                                    .partition = &uneven, .causal = true),
        &layer));
    check_frozen("latent attention", layer, whole);
    OK(tsr_column_linear_create(
        tsr_linear_params(.input_size = FEATURES / 4 * ranks, .output_size = 6 * ranks,
                          .input = TSR_LAYOUT_GATHER, .output = TSR_LAYOUT_FULL, .bias = true),
        &layer));
    check_frozen("column-parallel layer that gathers features", layer, part);
    OK(tsr_column_linear_create(tsr_linear_params(.input_size = FEATURES, .output_size = 6 * ranks,
                                                  .input = TSR_LAYOUT_SEQUENCE, .sequence_dim = 1,
                                                  .bias = true),
                                &layer));
    check_frozen("column-parallel layer that gathers a sequence", layer, whole);
    OK(tsr_row_linear_create(
        tsr_linear_params(.input_size = FEATURES / 4 * ranks, .output_size = 6,
                          .input = TSR_LAYOUT_GATHER,
                          .partition =
                              tsr_partition_params(.kind = TSR_PARTITION_UNEVEN, .align = 5),
                          .bias = true),
        &layer));
    check_frozen("row-parallel layer that gathers features", layer, part);
    OK(tsr_row_linear_create(tsr_linear_params(.input_size = FEATURES, .output_size = 6,
                                               .input = TSR_LAYOUT_FULL, .partition = &uneven,
                                               .output = TSR_LAYOUT_SEQUENCE, .sequence_dim = 1,
                                               .bias = true),
                             &layer));
    check_frozen("row-parallel layer with a divided sequence", layer, rows);
}

/* Replaces a weight by this rank's part of random numbers in q8_0 and, in `floats`, by the same
 * numbers as floats. */
static void put_blocks(tsr_layer *layer, tsr_layer *floats, int index)
{
    const tsr_parameter *parameter = tsr_layer_parameter(layer, index);
    const tsr_layout *layout = tsr_tensor_layout(parameter->tensor);
    tsr_tensor *blocks = tensor_new(TSR_Q8_0, layout->ndim, layout->shape);
    OK(tsr_copy(queue, blocks, parameter->tensor));
    OK(tsr_copy(queue, tsr_layer_parameter(floats, index)->tensor, blocks));
    OK(tsr_layer_set_parameter(layer, index, blocks, NULL, false));
    tsr_tensor_destroy(&blocks);
}

CASE(frozen_blocks, "frozen layers whose weights are in a block format have a dx")
{
    const int64_t shape[] = {2, TOKENS, FEATURES};
    tsr_mlp_params params = {.struct_size = sizeof params,
                             .name = "m",
                             .input_size = FEATURES,
                             .output_size = FEATURES,
                             .bias = true};
    double *values = numbers(2, count_of(3, shape), TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 3, shape, values), *dx[2];
    static const char *const names[] = {"MLP", "gated MLP", "delta net"};
    const tsr_delta_net_params *net =
        tsr_delta_net_params(.name = "d", .size = FEATURES, .key_heads = ranks, .heads = ranks,
                             .key_dim = 8, .value_dim = 32);
    params.hidden_size = 32 * ranks;
    for (int which = 0; which < 3; which++) {
        tsr_layer *layer = NULL, *floats = NULL;
        params.gated = which == 1;
        params.activation = which == 1 ? TSR_ACT_SILU : TSR_ACT_RELU;
        OK(which == 2 ? tsr_delta_net_create(net, &layer) : tsr_mlp_create(&params, &layer));
        OK(which == 2 ? tsr_delta_net_create(net, &floats) : tsr_mlp_create(&params, &floats));
        for (int i = 0; i < tsr_layer_parameter_count(layer); i++)
            if (tsr_layer_parameter(layer, i)->ndim == 2 &&
                !strstr(tsr_layer_parameter(layer, i)->name, "conv"))
                put_blocks(layer, floats, i);
        tsr_layer_set_frozen(layer, true);
        tsr_layer_set_frozen(floats, true);
        dx[0] = backward(layer, x, x);
        dx[1] = backward(floats, x, x);
        double *got = values_of(dx[0]), *want = values_of(dx[1]);
        for (int64_t i = 0; i < count_of(3, shape); i++)
            CHECK(fabs(got[i] - want[i]) <= 1e-4, "%s: dx %lld is %g, not %g", names[which],
                  (long long)i, got[i], want[i]);
        CHECK(gradients(layer) == 0, "there are gradients");
        free(got);
        free(want);
        tsr_tensor_destroy(&dx[0]);
        tsr_tensor_destroy(&dx[1]);
        tsr_layer_destroy(&layer);
        tsr_layer_destroy(&floats);
    }
    tsr_tensor_destroy(&x);
    free(values);
}

CASE(frozen_step, "an optimizer does not change a frozen layer, and FSDP refuses it")
{
    tsr_layer *layer = NULL;
    tsr_layer_saved *saved = NULL;
    tsr_optimizer *optimizer = NULL;
    tsr_fsdp *model = NULL;
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){2, FEATURES}), *y = NULL, *before;
    double norm = -1;
    tsr_layer_set_frozen(NULL, true);
    OK(tsr_column_linear_create(tsr_linear_params(.name = "base", .input_size = FEATURES,
                                                  .output_size = ranks, .bias = true),
                                &layer));
    before = tensor_new(TSR_F32, 2, (int64_t[]){1, FEATURES});
    OK(tsr_fill(queue, x, 1));
    OK(tsr_copy(queue, before, tsr_layer_parameter(layer, 0)->tensor));
    tsr_layer_set_frozen(layer, true);
    OK(tsr_optimizer_create(
        tsr_optimizer_params(.stream = queue, .adamw = tsr_adamw_params(.weight_decay = 1)),
        &optimizer));
    OK(tsr_optimizer_add_layer(optimizer, layer));
    OK(tsr_optimizer_zero_grad(optimizer));
    OK(tsr_layer_forward(layer, x, &saved, &y));
    OK(tsr_layer_backward(layer, saved, y, NULL));
    OK(tsr_optimizer_clip(optimizer, 1, NULL, &norm));
    OK(tsr_optimizer_step(optimizer, 0.1F));
    CHECK(norm == 0, "the norm is %g", norm);
    check_equal("weight", before, tsr_layer_parameter(layer, 0)->tensor);
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&y);

    OK(tsr_fsdp_create(
        tsr_fsdp_params(.group = group, .unit_count = 1, .units = tsr_fsdp_unit(.layer = layer)),
        &model));
    OK(tsr_fsdp_forward(model, 0, x, &saved, &y));
    FAILS(
        tsr_fsdp_backward(model, 0, saved, y, NULL), TSR_ERR_INVALID,
        "fsdp_backward: column_linear base, unit 0, is frozen; all layers of a model are trained");
    tsr_fsdp_destroy(&model);
    OK(tsr_fsdp_create(tsr_fsdp_params(.group = group, .unit_count = 1,
                                       .optimizer = TSR_OPTIMIZER_NONE,
                                       .units = tsr_fsdp_unit(.layer = layer)),
                       &model));
    OK(tsr_fsdp_backward(model, 0, saved, y, NULL));
    CHECK(!tsr_layer_parameter(layer, 0)->grad, "a frozen layer has a gradient");
    tsr_layer_set_frozen(layer, false);
    FAILS(tsr_fsdp_backward(model, 0, saved, y, NULL), TSR_ERR_INVALID,
          "fsdp_begin: a model without an optimizer has no gradients, and unit 0, column_linear "
          "base, is not frozen");
    tsr_fsdp_destroy(&model);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&before);
    tsr_layer_destroy(&layer);
}
