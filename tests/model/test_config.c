/* Reads the configuration of a model from config.json and from GGUF. */
#include <math.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/fault.h"
#include "model/convert/config.h"
#include "model/open.h"
#include "shard/files.h"
#include "shard/formats/gguf_metadata.h"
#include "support/check_main.h"
#include "tessera/model.h"

/* Writes a folder with this config.json and no weights, and reads it. */
static tsr_status read_json(const char *json, const char *generation, flat_config *out)
{
    folder in = folder_create();
    char path[160];
    bytes weights = safetensors_file("{}", 0);
    folder_write(&in, "model.safetensors", weights.data, weights.size, path);
    folder_write(&in, "config.json", json, strlen(json), path);
    if (generation != NULL)
        folder_write(&in, "generation_config.json", generation, strlen(generation), path);
    const tsr_status status = read_flat(in.path, out);
    free(weights.data);
    folder_destroy(&in);
    return status;
}

#define SIZES                                                                                      \
    "\"hidden_size\": 64, \"num_hidden_layers\": 3, \"num_attention_heads\": 8, "                  \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 96, \"vocab_size\": 100, "                 \
    "\"max_position_embeddings\": 512"
#define LLAMA "{\"model_type\": \"llama\", " SIZES
#define DELTA_NETS                                                                                 \
    ", \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 6, \"linear_key_head_dim\": 16, "  \
    "\"linear_value_head_dim\": 8"
#define LATENTS                                                                                    \
    EXPERTS("deepseek_v3")                                                                         \
    ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32, "       \
    "\"q_lora_rank\": null, \"kv_lora_rank\": 24, \"qk_nope_head_dim\": 12, "                      \
    "\"qk_rope_head_dim\": 8, \"v_head_dim\": 16"
#define EXPERTS(family) "{\"model_type\": \"" family "\", " SIZES
#define SHORT_CONVS EXPERTS("lfm2")

START_TEST(llama)
{
    flat_config c;
    ck_assert_ok(read_json(LLAMA
                           ", \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000, \"bos_token_id\": 7, "
                           "\"eos_token_id\": [3, 4, 3], \"unknown\": {\"a\": [1]}, "
                           "\"head_dim\": null}",
                           "{\"eos_token_id\": 9}", &c));
    ck_assert_str_eq(c.architecture, "llama");
    ck_assert_int_eq(c.layers, 3);
    ck_assert_int_eq(c.width, 64);
    ck_assert_int_eq(c.heads, 8);
    ck_assert_int_eq(c.kv_heads, 2);
    ck_assert_int_eq(c.head_dim, 8);
    ck_assert_int_eq(c.hidden, 96);
    ck_assert_int_eq(c.vocabulary, 100);
    ck_assert_int_eq(c.context, 512);
    ck_assert_equal(c.norm_epsilon, 1e-5);
    ck_assert_int_eq(c.norm, TSR_NORM_RMS);
    ck_assert_int_eq(c.activation, TSR_ACT_SILU);
    ck_assert(c.gated && !c.qkv_bias && !c.output_bias && !c.mlp_bias && !c.qk_norm);
    ck_assert(!c.tied && !c.norm_bias && !c.learned_positions && c.window == 0);
    ck_assert_int_eq(c.rope.rotary_dim, 8);
    ck_assert_equal(c.rope.theta, 500000);
    ck_assert_int_eq(c.rope.scaling, TSR_ROPE_SCALING_NONE);
    ck_assert_int_eq(c.bos, 7);
    ck_assert_int_eq(c.end_count, 3);
    ck_assert(c.end[0] == 3 && c.end[1] == 4 && c.end[2] == 9);
}
END_TEST

START_TEST(switches)
{
    flat_config c;
    ck_assert_ok(read_json(LLAMA ", \"attention_bias\": true, \"mlp_bias\": true, "
                                 "\"tie_word_embeddings\": true, \"hidden_act\": \"gelu\", "
                                 "\"head_dim\": 16, \"partial_rotary_factor\": 0.5}",
                           NULL, &c));
    ck_assert(c.qkv_bias && c.output_bias && c.mlp_bias && c.tied);
    ck_assert_int_eq(c.activation, TSR_ACT_GELU_ERF);
    ck_assert_int_eq(c.head_dim, 16);
    ck_assert_int_eq(c.rope.rotary_dim, 8);
    ck_assert_int_eq(c.bos, -1);
    ck_assert_equal(c.norm_epsilon, 1e-6);
    ck_assert_equal(c.rope.theta, 10000);
}
END_TEST

START_TEST(families)
{
    flat_config c;
    ck_assert_ok(
        read_json("{\"model_type\": \"mistral\", " SIZES ", \"sliding_window\": 33}", NULL, &c));
    ck_assert(c.window == 33 && c.window_from == 0);
    ck_assert_ok(
        read_json("{\"model_type\": \"mistral\", " SIZES ", \"sliding_window\": null}", NULL, &c));
    ck_assert_int_eq(c.window, 0);
    ck_assert_ok(
        read_json("{\"model_type\": \"qwen2\", " SIZES ", \"sliding_window\": 33}", NULL, &c));
    ck_assert(c.qkv_bias && !c.output_bias && !c.mlp_bias && c.window == 0);
    ck_assert_ok(read_json("{\"model_type\": \"qwen2\", " SIZES ", \"sliding_window\": 33, "
                           "\"use_sliding_window\": true, \"max_window_layers\": 2}",
                           NULL, &c));
    ck_assert(c.window == 33 && c.window_from == 2);
    ck_assert_ok(read_json("{\"model_type\": \"qwen3\", " SIZES ", \"head_dim\": 32}", NULL, &c));
    ck_assert(c.qk_norm && !c.qkv_bias && c.head_dim == 32);
    ck_assert_ok(read_json("{\"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32, \"n_inner\": null, "
                           "\"n_positions\": 77, \"vocab_size\": 50, \"layer_norm_epsilon\": 1e-4, "
                           "\"activation_function\": \"gelu_new\", \"model_type\": \"gpt2\"}",
                           NULL, &c));
    ck_assert(c.learned_positions && c.norm_bias && c.qkv_bias && c.output_bias && c.mlp_bias);
    ck_assert(c.tied && !c.gated && c.hidden == 128 && c.kv_heads == 4 && c.context == 77);
    ck_assert_int_eq(c.norm, TSR_NORM_LAYER);
    ck_assert_int_eq(c.activation, TSR_ACT_GELU_TANH);
    ck_assert_equal(c.norm_epsilon, 1e-4);
}
END_TEST

START_TEST(frequency_scaling)
{
    flat_config c;
    ck_assert_ok(
        read_json(LLAMA ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4.0}}", NULL, &c));
    ck_assert(c.rope.scaling == TSR_ROPE_SCALING_LINEAR && c.rope.factor == 4);
    ck_assert_ok(read_json(LLAMA ", \"rope_scaling\": {\"factor\": 8, \"low_freq_factor\": 1.5, "
                                 "\"high_freq_factor\": 5, \"original_max_position_embeddings\": "
                                 "8192, \"rope_type\": \"llama3\"}}",
                           NULL, &c));
    ck_assert(c.rope.scaling == TSR_ROPE_SCALING_LLAMA3 && c.rope.factor == 8);
    ck_assert(c.rope.low_frequency_factor == 1.5 && c.rope.high_frequency_factor == 5);
    ck_assert_equal(c.rope.original_length, 8192);
    ck_assert_ok(read_json(LLAMA ", \"rope_parameters\": {\"rope_theta\": 1e6, \"rope_type\": "
                                 "\"yarn\", \"factor\": 4}}",
                           NULL, &c));
    ck_assert(c.rope.scaling == TSR_ROPE_SCALING_YARN && c.rope.theta == 1e6);
    ck_assert(c.rope.original_length == 512 && c.rope.beta_fast == 32 && c.rope.beta_slow == 1);
    ck_assert_equal(c.rope.attention_factor, 0.1 * log(4) + 1);
    ck_assert_ok(read_json(LLAMA ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "
                                 "\"mscale\": 2, \"mscale_all_dim\": 0.5, \"beta_fast\": 16, "
                                 "\"original_max_position_embeddings\": 128}}",
                           NULL, &c));
    ck_assert_equal(c.rope.attention_factor, (0.2 * log(4) + 1) / (0.05 * log(4) + 1));
    ck_assert(c.rope.original_length == 128 && c.rope.beta_fast == 16);
    ck_assert_ok(read_json(LLAMA ", \"rope_scaling\": {\"rope_type\": \"default\"}}", NULL, &c));
    ck_assert_int_eq(c.rope.scaling, TSR_ROPE_SCALING_NONE);
}
END_TEST

/* The text model inside Gemma3ForConditionalGeneration, whose file leaves out usual values. */
START_TEST(gemma3_inside)
{
    flat_config c;
    ck_assert_ok(read_json(
        "{\"model_type\": \"gemma3\", \"eos_token_id\": [1, 106], \"text_config\": "
        "{\"model_type\": \"gemma3_text\", \"hidden_size\": 2560, \"intermediate_size\": "
        "10240, \"num_hidden_layers\": 34, \"sliding_window\": 1024, \"rope_scaling\": "
        "{\"factor\": 8.0, \"rope_type\": \"linear\"}}, \"vision_config\": {\"hidden_size\": 5}}",
        NULL, &c));
    ck_assert(c.heads == 8 && c.kv_heads == 4 && c.head_dim == 256 && c.vocabulary == 262208);
    ck_assert(c.layers == 34 && c.width == 2560 && c.tied && c.end_count == 2);
    ck_assert(c.rope.theta == 1e4 && c.rope.scaling == TSR_ROPE_SCALING_NONE && c.window == 1024);
}
END_TEST

/* Refused files -------------------------------------------------------------------------------- */

static const struct {
    const char *json, *text;
} mistakes[] = {
    {"[1]", "config.json: offset 0: an object expected, not '['"},
    {"{\"a\": 1}", "config.json: there is no model_type"},
    {"{\"model_type\": \"llama\", \"hidden_size\": \"x\"}",
     "config.json: offset 39: an integer expected, not '\"'"},
    {"{\"model_type\": \"llama\"}", "config.json: there is no number of layers"},
    {LLAMA ", \"num_hidden_layers\": 100000}",
     "config.json: number of layers is 100000; 1 to 1024 is possible"},
    {LLAMA ", \"hidden_size\": 9000000000}",
     "config.json: width is 9000000000; 1 to 1048576 is possible"},
    {LLAMA ", \"num_attention_heads\": 0}",
     "config.json: number of heads is 0; 1 to 4096 is possible"},
    {LLAMA ", \"num_key_value_heads\": 3}", "config.json: 8 heads do not divide over 3 kv heads"},
    {LLAMA ", \"hidden_size\": 65}", "config.json: a width of 65 does not divide over 8 heads"},
    {LLAMA ", \"head_dim\": 7}",
     "config.json: 7 components of a head of 7 are rotated; an even number from 2 is needed"},
    {LLAMA ", \"head_dim\": 100000}",
     "config.json: size of a head is 100000; 1 to 576 is possible"},
    {LLAMA ", \"v_head_dim\": 577}",
     "config.json: size of a head's values is 577; 1 to 576 is possible"},
    {LLAMA ", \"num_attention_heads\": 4096, \"head_dim\": 512, \"v_head_dim\": 8}",
     "config.json: 4096 heads of 512 features are more than 1048576"},
    {LLAMA ", \"num_attention_heads\": 4096, \"head_dim\": 8, \"v_head_dim\": 512}",
     "config.json: 4096 heads of 512 features are more than 1048576"},
    {LLAMA ", \"v_head_dim\": 0}",
     "config.json: size of a head's values is 0; 1 to 576 is possible"},
    {LLAMA ", \"intermediate_size\": -3}",
     "config.json: number of hidden features is -3; 1 to 8388608 is possible"},
    {LLAMA ", \"vocab_size\": 99999999}",
     "config.json: vocabulary is 99999999; 1 to 16777216 is possible"},
    {LLAMA ", \"rms_norm_eps\": 0}",
     "config.json: the norms' epsilon is 0; more than 0 and at most 1 is possible"},
    {LLAMA ", \"rope_theta\": -1.5}",
     "config.json: the base of rope is -1.5; a positive number is needed"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}",
     "config.json: rope scaling 'linear' has no factor"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8}}",
     "config.json: rope scaling 'llama3' has no original length"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": -8}}",
     "config.json: rope scaling 'yarn' has a factor of -8; a positive number is needed"},
    {LLAMA ", \"partial_rotary_factor\": 1.5}",
     "config.json: partial_rotary_factor is 1.5; more than 0 and at most 1 is possible"},
    {"{\"model_type\": \"mistral\", " SIZES ", \"sliding_window\": -4}",
     "config.json: sliding window is -4; 1 to 1073741824 is possible"},
    {"{\"model_type\": \"gemma2\", " SIZES ", \"layer_types\": [\"full_attention\"]}",
     "config.json: the list of the layers' types has 1 entries for 3 layers"},
    {"{\"model_type\": \"gemma3_text\", " SIZES
     ", \"sliding_window\": 4, \"sliding_window_pattern\": 0}",
     "config.json: sliding_window_pattern is 0; 1 to 1024 is possible"},
    {"{\"model_type\": \"gemma3_text\", " SIZES ", \"rope_local_base_freq\": -1.5}",
     "config.json: the base of rope in layers with a window is -1.5; a positive number is needed"},
    {"{\"model_type\": \"gemma2\", " SIZES ", \"query_pre_attn_scalar\": 0}",
     "config.json: query_pre_attn_scalar is 0; a positive number is needed"},
    {"{\"model_type\": \"gemma2\", " SIZES ", \"final_logit_softcapping\": -30}",
     "config.json: the soft cap of logits is -30; a positive number is needed"},
    {"{\"model_type\": \"gemma4_text\", " SIZES ", \"num_kv_shared_layers\": 3}",
     "config.json: 3 layers share the keys of others; 0 to 2 are possible"},
    {"{\"model_type\": \"gemma4_text\", " SIZES
     ", \"num_kv_shared_layers\": 2, \"sliding_window\": 4, \"layer_types\": "
     "[\"full_attention\", \"sliding_attention\", \"full_attention\"]}",
     "config.json: layer 1 shares keys, but no layer before it has keys of 2 kv heads of 8 "
     "features "
     "with a window of 4"},
    {"{\"model_type\": \"gemma4_text\", " SIZES ", \"global_head_dim\": 1024}",
     "config.json: size of a head is 1024; 1 to 576 is possible"},
    {"{\"model_type\": \"gemma4_text\", " SIZES
     ", \"num_attention_heads\": 4096, \"head_dim\": 8, \"global_head_dim\": 512}",
     "config.json: 4096 heads of 512 features in layer 0 are more than 1048576"},
    {"{\"model_type\": \"gemma4_text\", " SIZES ", \"head_dim\": 9, \"global_head_dim\": 16}",
     "config.json: rope in layers with a window rotates 9 features; an even number is needed"},
    {"{\"model_type\": \"gemma4_text\", " SIZES ", \"num_global_key_value_heads\": 3}",
     "config.json: 8 heads do not divide over 3 kv heads of layer 0"},
    {"{\"model_type\": \"gemma4_text\", " SIZES ", \"hidden_size_per_layer_input\": -2}",
     "config.json: each layer has an input of -2 features; 0 to 1048576 are possible"},
    {"{\"model_type\": \"gemma4_text\", " SIZES ", \"head_dim\": 9, \"rope_parameters\": "
     "{\"full_attention\": {\"rope_type\": \"proportional\"}}}",
     "config.json: proportional rope rotates 1 of heads of 9 features"},
    {"{\"model_type\": \"granite\", " SIZES ", \"logits_scaling\": 0}",
     "config.json: the divisor of logits is 0; a positive number is needed"},
    {"{\"model_type\": \"granite\", " SIZES ", \"residual_multiplier\": -0.5}",
     "config.json: the factor of residual branches is -0.5; a positive number is needed"},
    {"{\"model_type\": \"smollm3\", " SIZES ", \"no_rope_layers\": [1, 0]}",
     "config.json: no_rope_layers has 2 entries for 3 layers"},
    {"{\"no_rope_layers\": [1, 2], \"model_type\": \"smollm3\", " SIZES "}",
     "config.json: offset 23: an entry of no_rope_layers is 2; 0 or 1 is possible"},
    {"{\"model_type\": \"phi3\", " SIZES
     ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": []}}",
     "config.json: LongRoPE has 1 short and 0 long factors; 4 of each are needed"},
    {"{\"model_type\": \"phi3\", " SIZES ", \"rope_scaling\": {\"type\": \"longrope\", "
     "\"short_factor\": [1, 1, 0, 1], \"long_factor\": "
     "[1, 2, 3, 4]}}",
     "config.json: factors 2 of LongRoPE are 0 and 3; they must be above 0"},
    {"{\"model_type\": \"phi3\", " SIZES ", \"rope_scaling\": {\"type\": \"longrope\", "
     "\"short_factor\": [1, 1, 1, 1], \"long_factor\": "
     "[1, 2, 3, 4]}}",
     "config.json: rope scaling 'longrope' has no original length"},
    {EXPERTS("qwen3_moe") "}", "config.json: there is no number of experts"},
    {EXPERTS("qwen3_moe") ", \"num_experts\": 4}",
     "config.json: there is no number of experts per token"},
    {EXPERTS("mixtral") ", \"num_local_experts\": 4, \"num_experts_per_tok\": 5}",
     "config.json: a token uses 5 of 4 experts; 1 to 32, and at most all, are possible"},
    {EXPERTS("mixtral") ", \"num_local_experts\": 2000, \"num_experts_per_tok\": 2}",
     "config.json: there are 2000 experts; 1 to 1024 are possible"},
    {EXPERTS("qwen3_moe") ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                          "\"moe_intermediate_size\": 0}",
     "config.json: an expert has 0 hidden features; 1 to 8388608 are possible"},
    {EXPERTS("qwen3_moe") ", \"num_experts\": 1024, \"num_experts_per_tok\": 2, "
                          "\"moe_intermediate_size\": 1048576}",
     "config.json: 1024 experts of 1048576 hidden features are too many; 134217728 features of all "
     "experts are possible"},
    {EXPERTS("glm4_moe") ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 3, "
                         "\"topk_group\": 1}",
     "config.json: 4 experts cannot be divided into 3 groups"},
    {EXPERTS("glm4_moe") ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 3, \"n_group\": 2, "
                         "\"topk_group\": 1}",
     "config.json: a token uses 1 of 2 groups of 2 experts; they must be 1 to 2, and have the 3 "
     "experts that it uses"},
    {EXPERTS("glm4_moe") ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 3, \"n_group\": 2, "
                         "\"topk_group\": 5}",
     "config.json: a token uses 5 of 2 groups of experts"},
    {EXPERTS("glm4_moe") ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
                         "\"first_k_dense_replace\": 4}",
     "config.json: the first 4 layers have no experts; 0 to 3 are possible"},
    {EXPERTS("glm4_moe") ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
                         "\"n_shared_experts\": -2}",
     "config.json: there are -2 shared experts; 0 to 1024 are possible"},
    {EXPERTS("glm4_moe") ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, "
                         "\"n_shared_experts\": 3, "
                         "\"moe_intermediate_size\": 9223372036854775807}",
     "config.json: an expert has 9223372036854775807 hidden features; 1 to 8388608 are possible"},
    {EXPERTS("qwen2_moe") ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                          "\"shared_expert_intermediate_size\": -2}",
     "config.json: the shared expert has -2 hidden features; 0 to 8388608 are possible"},
    {"{\"mlp_only_layers\": [0, -1], \"model_type\": \"qwen3_moe\", " SIZES "}",
     "config.json: offset 24: an entry of mlp_only_layers is -1; 0 to 1023 is possible"},
    {EXPERTS("qwen3_5_text") "}", "config.json: there is no number of key heads of delta nets"},
    {EXPERTS("qwen3_5_text") DELTA_NETS ", \"linear_conv_kernel_dim\": 0}",
     "config.json: the convolution of a delta net has 0 taps; 2 to 16 are possible"},
    {EXPERTS("qwen3_5_text") DELTA_NETS ", \"linear_num_key_heads\": 5}",
     "config.json: 6 heads of a delta net do not divide over 5 key heads"},
    {EXPERTS("qwen3_5_text") DELTA_NETS ", \"full_attention_interval\": 0}",
     "config.json: full_attention_interval is 0; 1 to 1024 is possible"},
    {EXPERTS("qwen3_5_text") DELTA_NETS ", \"layer_types\": [\"linear_attention\"]}",
     "config.json: the list of the layers' types has 1 entries for 3 layers"},
    {SHORT_CONVS ", \"conv_L_cache\": 1}",
     "config.json: a short convolution has 1 taps; 2 to 16 are possible"},
    {SHORT_CONVS ", \"block_multiple_of\": 0}",
     "config.json: 96 hidden features, times 1, in multiples of 0, are not possible"},
    {SHORT_CONVS ", \"layer_types\": [\"conv\"]}",
     "config.json: the list of the layers' types has 1 entries for 3 layers"},
    {SHORT_CONVS ", \"full_attn_idxs\": [1024]}",
     "config.json: offset 213: an entry of full_attn_idxs is 1024; 0 to 1023 is possible"},
    {EXPERTS("deepseek_v3") "}", "config.json: there is no kv_lora_rank of latent attention"},
    {LATENTS ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 8, \"mscale_all_dim\": 1e200}}",
     "config.json: the factor of scores, by YaRN's mscale_all_dim, is inf; a positive number is "
     "needed"},
    {LATENTS ", \"v_head_dim\": 577}", "config.json: the number of features of a value of latent "
                                       "attention is 577; 1 to 576 is possible"},
    {LATENTS ", \"kv_lora_rank\": 569}",
     "config.json: latent attention has a kv_lora_rank of 569, and heads with 12 and 8 rotated "
     "features and values of 16; they must be at least 1, and the first two, with the rotated "
     "features, and values at most 576"},
    {LATENTS ", \"q_lora_rank\": -2}", "config.json: there is a q_lora_rank of -2"},
    {LATENTS ", \"qk_rope_head_dim\": 7}",
     "config.json: 7 components of a head of 7 are rotated; an even number from 2 is needed"},
    {LATENTS ", \"attention_bias\": true}",
     "config.json: a layer with latent attention has a window, soft cap, norm of q and k, sinks, "
     "temperature, bias of attention, gate, long_rope or delta net; none is possible"},
    {EXPERTS("gpt_oss") ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "
                        "\"swiglu_limit\": -3}",
     "config.json: the factor of the experts' weights is 1, and the limit of their activation -3"},
};
static const struct {
    const char *json, *text;
} unsupported[] = {
    {"{\"model_type\": \"mamba\"}",
     "config.json: architecture 'mamba' is not supported; these are: " MODEL_FAMILIES},
    {"{\"model_type\": \"a\\u0007b\"}",
     "config.json: architecture '?' is not supported; these are: " MODEL_FAMILIES},
    {"{\"layer_types\": [\"linear_attention\"], \"model_type\": \"gemma2\", " SIZES "}",
     "config.json: offset 17: layers of type 'linear_attention' are not supported"},
    {SHORT_CONVS ", \"conv_dim\": 32}",
     "config.json: short convolutions have 32 features; those of the width, 64, are supported"},
    {"{\"conv_bias\": true, \"model_type\": \"lfm2\", " SIZES "}",
     "config.json: offset 14: conv_bias = true is not supported"},
    {LLAMA ", \"hidden_act\": \"tanh\"}",
     "config.json: offset 209: activation 'tanh' is not supported"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}}",
     "config.json: rope scaling 'dynamic' is not supported; none, linear, llama3, yarn and "
     "longrope are"},
    {LLAMA ", \"rope_scaling\": {\"type\": \"mrope\"}}",
     "config.json: rope scaling 'mrope' is not supported; none, linear, llama3, yarn and "
     "longrope are"},
    {"{\"scoring_func\": \"none\", \"model_type\": \"minimax_m2\", " SIZES "}",
     "config.json: offset 17: gating function 'none' of experts is not supported; softmax and "
     "sigmoid are"},
    {LATENTS ", \"n_group\": 4, \"topk_group\": 2, \"topk_method\": \"group_limited_greedy\"}",
     "config.json: 4 groups of experts are chosen by their largest scores (group_limited_greedy), "
     "which is not supported"},
    {"{\"clip_qkv\": 8, \"model_type\": \"olmoe\", " SIZES "}",
     "config.json: offset 13: clip_qkv is not supported"},
    {"{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}",
     "config.json: offset 58: scale_attn_by_inverse_layer_idx = true is not supported"},
};

START_TEST(mistakes_are_named)
{
    flat_config c;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        ck_assert_error(read_json(mistakes[i].json, NULL, &c), TSR_ERR_INVALID, mistakes[i].text);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        ck_assert_error(read_json(unsupported[i].json, NULL, &c), TSR_ERR_UNSUPPORTED,
                        unsupported[i].text);
    ck_assert_error(read_json(LLAMA "}", "{\"eos_token_id\": true}", &c), TSR_ERR_INVALID,
                    "generation_config.json: offset 17: an integer expected, not 't'");
    ck_assert_error(read_flat(NULL, &c), TSR_ERR_INVALID, "model: path is NULL");
    ck_assert_error(read_flat("x", NULL), TSR_ERR_INVALID, "model: out is NULL");
    ck_assert_error(read_flat("/proc/nowhere", &c), TSR_ERR_NOT_FOUND,
                    "model: cannot open /proc/nowhere: No such file or directory");
}
END_TEST

START_TEST(missing_files_are_named)
{
    folder in = folder_create();
    char path[160], text[512];
    flat_config c;
    bytes weights = safetensors_file("{}", 0);
    snprintf(text, sizeof text, "model: %s has no config.json", in.path);
    ck_assert_error(read_flat(in.path, &c), TSR_ERR_NOT_FOUND, text);
    folder_write(&in, "other.safetensors", weights.data, weights.size, path);
    snprintf(text, sizeof text, "model: there is no config.json beside %s", path);
    ck_assert_error(read_flat(path, &c), TSR_ERR_NOT_FOUND, text);
    folder_write(&in, "config.json", LLAMA "}", strlen(LLAMA "}"), path);
    snprintf(text, sizeof text,
             "model: %s has neither model.safetensors nor model.safetensors.index.json", in.path);
    ck_assert_error(read_flat(in.path, &c), TSR_ERR_NOT_FOUND, text);
    snprintf(path, sizeof path, "%s/other.safetensors", in.path);
    ck_assert_ok(read_flat(path, &c));
    ck_assert_int_eq(c.layers, 3);
    free(weights.data);
    folder_destroy(&in);
}
END_TEST

/* GGUF ----------------------------------------------------------------------------------------- */

static void put_u32(bytes *to, const char *key, uint32_t value)
{
    put_text(to, key);
    put_integer(to, 4, 4);
    put_integer(to, value, 4);
}

static void put_f32(bytes *to, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_text(to, key);
    put_integer(to, 6, 4);
    put_integer(to, bits, 4);
}

static void put_string(bytes *to, const char *key, const char *value)
{
    put_text(to, key);
    put_integer(to, 8, 4);
    put_text(to, value);
}

/* Writes the metadata of a small model: 8 keys. */
static void put_sizes(bytes *to, const char *architecture)
{
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {
        {"block_count", 3},          {"embedding_length", 64}, {"attention.head_count", 8},
        {"feed_forward_length", 96}, {"context_length", 512},  {"attention.head_count_kv", 2},
    };
    char key[128];
    put_string(to, "general.architecture", architecture);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i].key);
        put_u32(to, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", architecture);
    put_f32(to, key, 0x1p-17f);
}

static tsr_status read_gguf(const bytes *file, flat_config *out)
{
    folder in = folder_create();
    char path[160];
    folder_write(&in, "m.gguf", file->data, file->size, path);
    const tsr_status status = read_flat(path, out);
    folder_destroy(&in);
    return status;
}

START_TEST(gguf)
{
    flat_config c;
    bytes file = {0};
    put_gguf_head(&file, 3, 1, 8 + 4);
    put_sizes(&file, "llama");
    put_f32(&file, "llama.rope.freq_base", 5000);
    put_u32(&file, "tokenizer.ggml.bos_token_id", 1);
    put_u32(&file, "tokenizer.ggml.eos_token_id", 2);
    put_u32(&file, "tokenizer.ggml.eot_token_id", 5);
    put_gguf_tensor(&file, "token_embd.weight", 64, 100, 0, 0);
    put_zeros(&file, 64 * 100 * 4 + 64);
    ck_assert_ok(read_gguf(&file, &c));
    ck_assert_str_eq(c.architecture, "llama");
    ck_assert(c.layers == 3 && c.width == 64 && c.heads == 8 && c.kv_heads == 2 && c.head_dim == 8);
    ck_assert(c.hidden == 96 && c.context == 512 && c.vocabulary == 100 && c.tied);
    ck_assert_equal(c.norm_epsilon, 0x1p-17);
    ck_assert_equal(c.rope.theta, 5000);
    ck_assert(c.bos == 1 && c.end_count == 2 && c.end[0] == 2 && c.end[1] == 5);
    free(file.data);
}
END_TEST

START_TEST(gguf_scaling_and_window)
{
    flat_config c;
    bytes file = {0};
    put_gguf_head(&file, 3, 0, 8 + 6);
    put_sizes(&file, "llama");
    put_u32(&file, "llama.vocab_size", 99);
    put_u32(&file, "llama.attention.sliding_window", 40);
    put_string(&file, "llama.rope.scaling.type", "yarn");
    put_f32(&file, "llama.rope.scaling.factor", 4);
    put_f32(&file, "llama.rope.scaling.attn_factor", 2);
    put_u32(&file, "llama.rope.scaling.original_context_length", 128);
    ck_assert_ok(read_gguf(&file, &c));
    ck_assert_str_eq(c.architecture, "mistral");
    ck_assert(c.window == 40 && c.vocabulary == 99);
    ck_assert(c.rope.scaling == TSR_ROPE_SCALING_YARN && c.rope.original_length == 128);
    ck_assert_equal(c.rope.attention_factor, 2 * (0.1 * log(4) + 1));
    free(file.data);
}
END_TEST

/* Returns a file with the frequency divisors of Llama 3, one of which may be wrong. */
static bytes with_factors(const char *architecture, int wrong)
{
    bytes file = {0};
    char key[64];
    put_gguf_head(&file, 3, 1, 8 + 2);
    put_sizes(&file, architecture);
    snprintf(key, sizeof key, "%s.vocab_size", architecture);
    put_u32(&file, key, 99);
    snprintf(key, sizeof key, "%s.rope.freq_base", architecture);
    put_f32(&file, key, 500000);
    put_text(&file, "rope_freqs.weight");
    put_integer(&file, 1, 4);
    put_integer(&file, 4, 8);
    put_integer(&file, 0, 4);
    put_integer(&file, 0, 8);
    put_zeros(&file, (32 - file.size % 32) % 32);
    for (int i = 0; i < 4; i++) {
        const double f = pow(500000, -i / 4.0), wave = 2 * 3.14159265358979323846 / f;
        const double smooth = (8192 / wave - 1) / 3;
        double divisor = wave < 2048 ? 1 : wave > 8192 ? 8 : 1 / ((1 - smooth) / 8 + smooth);
        const float value = (float)(i == wrong ? divisor + 0.5 : divisor);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        put_integer(&file, bits, 4);
    }
    return file;
}

START_TEST(gguf_of_llama_3)
{
    flat_config c;
    bytes file = with_factors("llama", -1);
    ck_assert_ok(read_gguf(&file, &c));
    ck_assert(c.rope.scaling == TSR_ROPE_SCALING_LLAMA3 && c.rope.factor == 8);
    ck_assert(c.rope.original_length == 8192 && c.rope.high_frequency_factor == 4);
    free(file.data);
    file = with_factors("llama", 1);
    ck_assert_error(
        read_gguf(&file, &c), TSR_ERR_UNSUPPORTED,
        "gguf: rope_freqs.weight is not the scaling of Llama 3: element 1 is 1.5, not 1; "
        "others are not supported");
    free(file.data);
}
END_TEST

/* Puts a list of three numbers. */
static void put_list(bytes *to, const char *key, uint32_t a, uint32_t b, uint32_t c)
{
    put_text(to, key);
    put_integer(to, 9, 4);
    put_integer(to, 4, 4);
    put_integer(to, 3, 8);
    put_integer(to, a, 4);
    put_integer(to, b, 4);
    put_integer(to, c, 4);
}

/* Returns a file whose layers have these numbers of kv heads. */
static bytes with_kv_heads(const char *architecture, int layers, uint32_t a, uint32_t b)
{
    bytes file = {0};
    char key[64];
    put_gguf_head(&file, 3, 0, 7);
    put_string(&file, "general.architecture", architecture);
    const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"block_count", (uint32_t)layers},
                 {"embedding_length", 64},
                 {"attention.head_count", 8},
                 {"context_length", 512},
                 {"vocab_size", 99}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(key, sizeof key, "%s.%s", architecture, sizes[i].key);
        put_u32(&file, key, sizes[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.head_count_kv", architecture);
    put_list(&file, key, a, b, a);
    return file;
}

START_TEST(gguf_sizes_by_layers)
{
    flat_config c;
    bytes file = with_factors("gemma4", -1);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_UNSUPPORTED,
                    "gguf: rope_freqs.weight is not 1, … and then 1e30, …, which divide the "
                    "frequencies of this architecture");
    free(file.data);
    file = with_kv_heads("llama", 3, 2, 4);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_UNSUPPORTED,
                    "gguf: layers have different numbers of kv heads, 2 and 4, which is not "
                    "supported in architecture llama");
    free(file.data);
    file = with_kv_heads("gemma4", 4, 2, 4);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_INVALID,
                    "gguf: the list of numbers of kv heads has 3 entries for 4 layers");
    free(file.data);
    file = with_kv_heads("gemma4", 3, 2, 3);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_INVALID,
                    "gguf: there is no number of hidden features");
    free(file.data);
}
END_TEST

START_TEST(gguf_mistakes)
{
    flat_config c;
    bytes file = {0};
    put_gguf_head(&file, 3, 0, 1);
    put_string(&file, "general.name", "x");
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_INVALID,
                    "gguf: there is no general.architecture");
    free(file.data);
    file = (bytes){0};
    put_gguf_head(&file, 3, 0, 1);
    put_string(&file, "general.architecture", "rwkv");
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_UNSUPPORTED,
                    "gguf: architecture 'rwkv' is not supported; these are: " MODEL_FAMILIES);
    free(file.data);
    file = (bytes){0};
    put_gguf_head(&file, 3, 0, 8 + 2);
    put_sizes(&file, "llama");
    put_u32(&file, "llama.vocab_size", 99);
    put_u32(&file, "llama.expert_count", 8);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_INVALID,
                    "gguf: there is no number of experts per token");
    free(file.data);
    file = (bytes){0};
    put_gguf_head(&file, 3, 0, 8 + 2);
    put_sizes(&file, "phi3");
    put_u32(&file, "phi3.vocab_size", 99);
    put_u32(&file, "phi3.expert_count", 8);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_UNSUPPORTED,
                    "gguf: phi3.expert_count is 8; experts are not supported in this architecture");
    free(file.data);
    file = (bytes){0};
    put_gguf_head(&file, 3, 0, 8 + 1);
    put_sizes(&file, "glm4moe");
    put_u32(&file, "glm4moe.expert_gating_func", 4);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_UNSUPPORTED,
                    "gguf: glm4moe.expert_gating_func is 4, which is not supported; 1 (softmax), 2 "
                    "(sigmoid) and 3 (softmax of the chosen) are");
    free(file.data);
    file = (bytes){0};
    put_gguf_head(&file, 3, 0, 2);
    put_string(&file, "general.architecture", "qwen2");
    put_f32(&file, "qwen2.block_count", 3);
    ck_assert_error(read_gguf(&file, &c), TSR_ERR_INVALID,
                    "gguf: offset 98: key 'qwen2.block_count': it is a value of type 6, not an "
                    "integer");
    free(file.data);
}
END_TEST

/* A model in which some layers have experts. */
START_TEST(layers_with_experts)
{
    static const char json[] =
        EXPERTS("qwen3_moe") ", \"num_experts\": 4, \"num_experts_per_tok\": 2, "
                             "\"moe_intermediate_size\": 24, \"norm_topk_prob\": false, "
                             "\"mlp_only_layers\": [1]}";
    folder in = folder_create();
    char path[160];
    tsr_model_file *file = NULL;
    folder_write(&in, "config.json", json, strlen(json), path);
    ck_assert_ok(tsr_model_file_open(path, &file));
    const tsr_model_config *c = tsr_model_file_config(file);
    const tsr_model_experts *e = layer_of(c, 0)->experts;
    ck_assert(c->kind_count == 2 && e && !layer_of(c, 1)->experts && layer_of(c, 2)->experts == e);
    ck_assert(e->count == 4 && e->used == 2 && e->hidden == 24 && !e->normalise && e->scale == 1);
    ck_assert(layer_of(c, 1)->hidden == 96);
    /* in a layer: 4 experts of 3 matrices, and a router; otherwise 3 matrices */
    const uint64_t with = tsr_model_config_parameters(c, 0),
                   without = tsr_model_config_parameters(c, 1);
    ck_assert_int_eq((int64_t)(with - without), 4 * 3 * 24 * 64 + 4 * 64 - 3 * 96 * 64);
    tsr_model_file_close(&file);
    folder_destroy(&in);
}
END_TEST

/* Qwen 3.5 inside a model for images and text: which layers have delta nets, and their sizes. */
START_TEST(layers_with_delta_nets)
{
    static const char json[] =
        "{\"model_type\": \"qwen3_5\", \"text_config\": {\"model_type\": \"qwen3_5_text\", " SIZES
            DELTA_NETS ", \"layer_types\": [\"linear_attention\", \"full_attention\", "
        "\"linear_attention\"], \"head_dim\": 16, \"mtp_num_hidden_layers\": 1, "
        "\"rope_parameters\": {\"rope_type\": \"mrope\", \"rope_theta\": 1e7, "
        "\"partial_rotary_factor\": 0.25, \"mrope_section\": [1, 1, 0], "
        "\"mrope_interleaved\": true}}}";
    folder in = folder_create();
    char path[160];
    tsr_model_file *file = NULL;
    folder_write(&in, "config.json", json, strlen(json), path);
    ck_assert_ok(tsr_model_file_open(path, &file));
    const tsr_model_config *c = tsr_model_file_config(file);
    const tsr_model_layer *attention = layer_of(c, 1), *delta = layer_of(c, 0);
    const tsr_model_delta_net *net = delta->delta_net;
    ck_assert(c->kind_count == 2 && layer_of(c, 2) == delta && !attention->delta_net);
    ck_assert(net && net->key_heads == 2 && net->heads == 6 && net->key_dim == 16 &&
              net->value_dim == 8 && net->taps == 4);
    ck_assert(delta->heads == 0 && !delta->rope && !delta->output_gate && delta->hidden == 96);
    ck_assert(attention->output_gate && attention->qk_norm == TSR_QK_NORM_HEADS);
    ck_assert(attention->rope->rotary_dim == 4 && attention->rope->theta == 1e7);
    ck_assert_int_eq(c->next_token_layers, 1);
    const int64_t rest = 2 * 64 + 3 * 96 * 64,
                  gated = 2 * 16 * 64 * 8 + 2 * 16 * 64 * 2 + 16 * 8 * 64 + 2 * 16;
    ck_assert_int_eq((int64_t)tsr_model_config_parameters(c, 0),
                     rest + 2 * 32 * (64 + 4) + 2 * 48 * 64 + 48 * 4 + 2 * 6 * 64 + 2 * 6 + 8 +
                         48 * 64);
    ck_assert_int_eq((int64_t)tsr_model_config_parameters(c, 1), rest + gated);
    ck_assert_int_eq((int64_t)tsr_model_config_parameters(c, 3),
                     rest + gated + 3 * 64 + 2 * 64 * 64);
    ck_assert_int_eq((int64_t)tsr_model_config_parameters(c, 4), 0);
    ck_assert_int_eq(
        (int64_t)tsr_model_config_parameters(c, -1),
        (int64_t)(2 * tsr_model_config_parameters(c, 0) + tsr_model_config_parameters(c, 1)) +
            2 * 100 * 64 + 64);
    tsr_model_file_close(&file);
    folder_destroy(&in);
}
END_TEST

/* Writes a configuration as a GGUF file, and reads it. The file has no tensors but the one that
 * says that it has layers that predict further tokens. */
static tsr_model_file *through_gguf(const folder *in, const tsr_model_config *c)
{
    tsr__gguf_writer writer = {0};
    uint8_t *header = NULL;
    size_t size = 0;
    uint64_t offset = 0, data_size = 0;
    char path[160], name[64];
    tsr_model_file *file = NULL;
    const tsr_shard_param join = {
        .struct_size = sizeof join, .name = name, .dtype = "F32", .ndim = 1, .shape = {8}};
    snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", c->layers);
    ck_assert_ok(tsr__config_put_gguf(c, "x", &writer));
    if (c->next_token_layers > 0)
        ck_assert_ok(tsr__gguf_put_tensor(&writer, &join, &offset, &data_size));
    ck_assert_ok(tsr__gguf_header(&writer, &header, &size));
    char *all = tsr__calloc(1, size + data_size);
    ck_assert_ptr_nonnull(all);
    memcpy(all, header, size);
    folder_write(in, "x.gguf", all, size + data_size, path);
    tsr__free(all);
    ck_assert_ok(tsr_model_file_open(path, &file));
    ck_assert_ok(tsr__config_compare(c, tsr_model_file_config(file), path));
    tsr__free(header);
    tsr__gguf_writer_finish(&writer);
    return file;
}

/* Returns the number of bools in the first list of bools of a file, after its key. */
static uint64_t bools_of(const folder *in, const char *key)
{
    const size_t length = strlen(key);
    char path[160], content[4096];
    snprintf(path, sizeof path, "%s/x.gguf", in->path);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t size = fread(content, 1, sizeof content, file);
    fclose(file);
    for (size_t i = 0; i + length + 16 <= size; i++)
        if (memcmp(content + i, key, length) == 0) {
            const uint8_t *list = (const uint8_t *)content + i + length;
            ck_assert(tsr__get_u32(list) == TSR__GGUF_ARRAY &&
                      tsr__get_u32(list + 4) == TSR__GGUF_BOOL);
            return tsr__get_u64(list + 8);
        }
    ck_abort_msg("there is no %s", key);
}

/* GGUF files have a list of the layers with delta nets if no period says which they are. The list
 * has the layers that predict further tokens, too. */
START_TEST(patterns_of_delta_nets)
{
    static const char json[] =
        EXPERTS("qwen3_5_text") DELTA_NETS ", \"layer_types\": [\"linear_attention\", "
                                           "\"full_attention\", \"full_attention\"], "
                                           "\"mtp_num_hidden_layers\": 1, "
                                           "\"tie_word_embeddings\": true}";
    folder in = folder_create();
    char path[160];
    tsr_model_file *file = NULL;
    folder_write(&in, "config.json", json, strlen(json), path);
    ck_assert_ok(tsr_model_file_open(path, &file));
    tsr_model_file *read = through_gguf(&in, tsr_model_file_config(file));
    const tsr_model_config *c = tsr_model_file_config(read);
    ck_assert(layer_of(c, 0)->delta_net && !layer_of(c, 1)->delta_net &&
              !layer_of(c, 2)->delta_net);
    ck_assert_uint_eq(bools_of(&in, "qwen35.attention.recurrent_layers"), 4);
    tsr_model_file_close(&read);
    tsr_model_file_close(&file);
    folder_destroy(&in);
}
END_TEST

/* A config.json without weights says how many layers predict further tokens. */
START_TEST(layers_after_the_last)
{
    static const char json[] =
        EXPERTS("glm4_moe") ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, "
                            "\"moe_intermediate_size\": 32, \"num_nextn_predict_layers\": 1}";
    folder in = folder_create();
    char path[160];
    tsr_model_file *file = NULL;
    folder_write(&in, "config.json", json, strlen(json), path);
    ck_assert_ok(tsr_model_file_open(path, &file));
    ck_assert_int_eq(tsr_model_file_config(file)->next_token_layers, 1);
    tsr_model_file_close(&file);
    folder_destroy(&in);
}
END_TEST

/* LFM2: which layers have short convolutions, by both lists, and the sizes of MLPs. */
START_TEST(layers_with_short_convs)
{
    static const char *const json[] = {
        SHORT_CONVS ", \"full_attn_idxs\": [1], \"conv_L_cache\": 4, \"block_ff_dim\": 1000, "
                    "\"block_multiple_of\": 64, \"block_ffn_dim_multiplier\": 1.5, "
                    "\"theta\": 5000}",
        SHORT_CONVS ", \"layer_types\": [\"conv\", \"full_attention\", \"conv\"], "
                    "\"block_auto_adjust_ff_dim\": false, \"tie_embedding\": false}"};
    for (int i = 0; i < 2; i++) {
        folder in = folder_create();
        char path[160];
        tsr_model_file *file = NULL;
        folder_write(&in, "config.json", json[i], strlen(json[i]), path);
        ck_assert_ok(tsr_model_file_open(path, &file));
        const tsr_model_config *c = tsr_model_file_config(file);
        const tsr_model_layer *conv = layer_of(c, 0), *attention = layer_of(c, 1);
        const int taps = i == 0 ? 4 : 3;
        ck_assert(c->kind_count == 2 && layer_of(c, 2) == conv && c->tied == (i == 0));
        ck_assert(conv->conv_taps == taps && conv->heads == 0 && !conv->rope &&
                  conv->qk_norm == TSR_QK_NORM_NONE);
        ck_assert(attention->conv_taps == 0 && attention->heads == 8 && attention->kv_heads == 2 &&
                  attention->qk_norm == TSR_QK_NORM_HEADS);
        ck_assert_double_eq(attention->rope->theta, i == 0 ? 5000 : 1e6);
        ck_assert_int_eq(conv->hidden, i == 0 ? 1024 : 96); /* 1000 · 2/3 = 666, · 1.5 = 999 */
        ck_assert_int_eq((int64_t)tsr_model_config_parameters(c, 0),
                         2 * 64 + 64 * taps + 4 * 64 * 64 + 3 * conv->hidden * 64);
        tsr_model_file *read = NULL;
        if (c->tied) /* GGUF files without tensors have no head */
            read = through_gguf(&in, c);
        tsr_model_file_close(&read);
        tsr_model_config changed = *c;
        tsr_model_layer other = *conv;
        changed.kind_count = 1;
        changed.layer_kinds = NULL;
        changed.kinds = (const tsr_model_layer *const[]){&other};
        other.heads = 4;
        ck_assert_error(tsr_model_file_open_random(&changed, TSR_F32, 1, &read), TSR_ERR_INVALID,
                        "model: configuration: a layer with a short convolution has heads 4, which "
                        "only attention has");
        other.heads = 0;
        other.conv_taps = 17;
        ck_assert_error(tsr_model_file_open_random(&changed, TSR_F32, 1, &read), TSR_ERR_INVALID,
                        "model: configuration: a short convolution has 17 taps; 2 to 16 are "
                        "possible");
        changed.architecture = "llama";
        ck_assert_error(tsr_model_file_open_random(&changed, TSR_F32, 1, &read), TSR_ERR_INVALID,
                        "model: configuration: a layer has conv_taps 17; models of architecture "
                        "llama have no short convolutions");
        tsr_model_file_close(&file);
        folder_destroy(&in);
    }
}
END_TEST

/* Latent attention: its sizes, the factor of scores of YaRN, and the parameters of a layer. */
START_TEST(layers_with_latents)
{
    folder in = folder_create();
    char path[160];
    tsr_model_file *file = NULL;
    static const char json[] =
        LATENTS ", \"q_lora_rank\": 20, \"first_k_dense_replace\": 1, \"rope_scaling\": {\"type\": "
                "\"yarn\", \"factor\": 40, \"original_max_position_embeddings\": 64, \"mscale\": "
                "0.707, \"mscale_all_dim\": 0.707}}";
    folder_write(&in, "config.json", json, strlen(json), path);
    ck_assert_ok(tsr_model_file_open(path, &file));
    const tsr_model_config *c = tsr_model_file_config(file);
    const tsr_model_layer *layer = layer_of(c, 0);
    const tsr_model_latent *l = layer->latent;
    ck_assert(l && l->q_lora_rank == 20 && l->kv_lora_rank == 24 && l->nope_dim == 12);
    ck_assert(l->rope_dim == 8 && l->value_dim == 16);
    ck_assert(layer->heads == 8 && layer->kv_heads == 8 && layer->head_dim == 20);
    ck_assert(layer->rope->rotary_dim == 8 && layer->rope->pairing == TSR_ROPE_ADJACENT);
    ck_assert_double_eq_tol(layer->rope->attention_factor, 1, 1e-12);
    const double scale = 0.0707 * log(40.0) + 1;
    ck_assert_double_eq_tol(layer->attention_scale, scale * scale / sqrt(20.0), 1e-12);
    ck_assert_int_eq((int64_t)tsr_model_config_parameters(c, 0),
                     2 * 64 + 20 * 64 + 20 + 160 * 20 + 32 * 64 + 24 + 8 * 24 * (12 + 16) +
                         64 * 128 + 3 * 64 * 96);
    tsr_model_config changed = *c;
    tsr_model_layer other = *layer;
    changed.kind_count = 1;
    changed.layer_kinds = NULL;
    changed.kinds = (const tsr_model_layer *const[]){&other};
    tsr_model_file *random = NULL;
    ck_assert_ok(tsr_model_file_open_random(&changed, TSR_F32, 1, &random));
    tsr_model_file_close(&random);
    other.value_dim = 20;
    ck_assert_error(tsr_model_file_open_random(&changed, TSR_F32, 1, &random), TSR_ERR_INVALID,
                    "model: configuration: a layer with latent attention has a value_dim of 20, "
                    "but its values have 16 features");
    other.value_dim = 0;
    other.kv_heads = 4;
    ck_assert_error(
        tsr_model_file_open_random(&changed, TSR_F32, 1, &random), TSR_ERR_INVALID,
        "model: configuration: a layer with latent attention has 8 heads, 4 kv heads and a "
        "head_dim of 20; as many kv heads as heads, and 20, are needed");
    other.latent = NULL;
    ck_assert_error(tsr_model_file_open_random(&changed, TSR_F32, 1, &random), TSR_ERR_INVALID,
                    "model: configuration: a layer has no latent attention; models of architecture "
                    "deepseek_v3 have latent attention");
    tsr_model_file_close(&file);
    folder_destroy(&in);
}
END_TEST

START_TEST(memory_runs_out)
{
    static const char *const paths[] = {TEST_DATA "/model/stories260K-hf",
                                        TEST_DATA "/model/stories260K-q8_0mix.gguf"};
    for (int i = 0; i < 2; i++) {
        flat_config c;
        uint64_t nth = 0;
        for (bool reached = true; reached; nth++) {
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            const tsr_status status = read_flat(paths[i], &c);
            reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
        }
        ck_assert_uint_gt(nth, 5);
        ck_assert_int_eq(c.layers, 5);
    }
}
END_TEST

/* The tokenizer of an opened GGUF file, whose metadata are not read again, is that of the path. */
START_TEST(a_model_opens_its_tokenizer)
{
    static const char path[] = TEST_DATA "/model/stories260K-f16.gguf", text[] = "Once upon a time";
    tsr_model_file *file = NULL;
    tsr_tokenizer *of_file = NULL, *of_path = NULL;
    int32_t *ids[2];
    uint64_t counts[2];
    ck_assert_ok(tsr_model_file_open(path, &file));
    ck_assert_ok(tsr_model_file_open_tokenizer(file, &of_file));
    ck_assert_ok(tsr_tokenizer_open(path, &of_path));
    ck_assert_ok(tsr_tokenizer_encode(of_file, text, strlen(text), NULL, &ids[0], &counts[0]));
    ck_assert_ok(tsr_tokenizer_encode(of_path, text, strlen(text), NULL, &ids[1], &counts[1]));
    ck_assert(counts[0] > 1 && counts[0] == counts[1]);
    ck_assert_mem_eq(ids[0], ids[1], (size_t)counts[0] * sizeof *ids[0]);
    tsr_tokenizer_free_ids(&ids[0]);
    tsr_tokenizer_free_ids(&ids[1]);
    tsr_tokenizer_close(&of_file);
    tsr_tokenizer_close(&of_path);
    ck_assert_error(tsr_model_file_open_tokenizer(NULL, &of_file), TSR_ERR_INVALID,
                    "model: file is NULL");
    tsr_model_file_close(&file);
}
END_TEST

TESTS(config)
{
    tcase_add_test(tests, a_model_opens_its_tokenizer);
    tcase_add_test(tests, llama);
    tcase_add_test(tests, gemma3_inside);
    tcase_add_test(tests, switches);
    tcase_add_test(tests, families);
    tcase_add_test(tests, frequency_scaling);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, missing_files_are_named);
    tcase_add_test(tests, gguf);
    tcase_add_test(tests, gguf_scaling_and_window);
    tcase_add_test(tests, gguf_of_llama_3);
    tcase_add_test(tests, gguf_sizes_by_layers);
    tcase_add_test(tests, gguf_mistakes);
    tcase_add_test(tests, layers_with_experts);
    tcase_add_test(tests, layers_with_delta_nets);
    tcase_add_test(tests, patterns_of_delta_nets);
    tcase_add_test(tests, layers_after_the_last);
    tcase_add_test(tests, layers_with_short_convs);
    tcase_add_test(tests, layers_with_latents);
    tcase_add_test(tests, memory_runs_out);
}
