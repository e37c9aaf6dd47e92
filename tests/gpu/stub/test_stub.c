/* Tests a build without Vulkan: every function returns TSR_ERR_UNSUPPORTED or does nothing.
 * tests/source/symbols.sh checks that all functions exist. */
#include "support/check_main.h"
#include "tessera/tessera.h"
#include "tool_seam.h"

#define SAYS_SO(function, ...)                                                                     \
    ck_assert_error(function(__VA_ARGS__), TSR_ERR_UNSUPPORTED,                                    \
                    &#function ": this build of tessera has no Vulkan"[sizeof "tsr_" - 1])

START_TEST(everything_is_unsupported)
{
    SAYS_SO(tsr_device_list_create, NULL);
    SAYS_SO(tsr_device_open, NULL, NULL);
    SAYS_SO(tsr_tensor_create, NULL, TSR_F32, 0, NULL, NULL);
    SAYS_SO(tsr_tensor_create_host, NULL, TSR_F32, 0, NULL, NULL);
    SAYS_SO(tsr_tensor_slice, NULL, 0, 0, 0, 0, NULL);
    SAYS_SO(tsr_tensor_select, NULL, 0, 0, NULL);
    SAYS_SO(tsr_tensor_transpose, NULL, 0, 0, NULL);
    SAYS_SO(tsr_tensor_broadcast, NULL, 0, NULL, NULL);
    SAYS_SO(tsr_tensor_reshape, NULL, 0, NULL, NULL);
    SAYS_SO(tsr_tensor_view, NULL, NULL, NULL);
    SAYS_SO(tsr_tensor_upload, NULL, NULL, NULL, 0);
    SAYS_SO(tsr_tensor_download, NULL, NULL, NULL, 0);
    SAYS_SO(tsr_tensor_map, NULL, NULL);
    SAYS_SO(tsr_stream_create, NULL, NULL);
    SAYS_SO(tsr_stream_submit, NULL);
    SAYS_SO(tsr_stream_wait, NULL);
    SAYS_SO(tsr_stream_mark, NULL, NULL);
    SAYS_SO(tsr_stream_wait_point, NULL, 0, 0);
    SAYS_SO(tsr_stream_reached, NULL, 0, NULL);
    SAYS_SO(tsr_stream_timer_begin, NULL);
    SAYS_SO(tsr_stream_timer_end, NULL);
    SAYS_SO(tsr_stream_timer_read, NULL, NULL);
    SAYS_SO(tsr_copy, NULL, NULL, NULL);
    SAYS_SO(tsr_fill, NULL, NULL, 0);
    SAYS_SO(tsr_binary, NULL, NULL, NULL, NULL, TSR_BINARY_ADD);
    SAYS_SO(tsr_binary_grad, NULL, NULL, NULL, NULL, NULL, NULL, TSR_BINARY_DIV);
    SAYS_SO(tsr_unary, NULL, NULL, NULL, TSR_UNARY_EXP);
    SAYS_SO(tsr_unary_grad, NULL, NULL, NULL, NULL, TSR_UNARY_EXP);
    SAYS_SO(tsr_clamp, NULL, NULL, NULL, 0, 1);
    SAYS_SO(tsr_clamp_grad, NULL, NULL, NULL, NULL, 0, 1);
    SAYS_SO(tsr_where, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_scale, NULL, NULL, NULL, 0, 0);
    SAYS_SO(tsr_axpy, NULL, NULL, 0, NULL);
    SAYS_SO(tsr_activate, NULL, NULL, NULL, NULL, TSR_ACT_NONE);
    SAYS_SO(tsr_activate_grad, NULL, NULL, NULL, NULL, TSR_ACT_NONE);
    SAYS_SO(tsr_reduce, NULL, NULL, NULL, 0, TSR_REDUCE_SUM, false);
    SAYS_SO(tsr_argmax, NULL, NULL, NULL, 0);
    SAYS_SO(tsr_sum_squares, NULL, NULL, NULL, 0, 1);
    SAYS_SO(tsr_topk, NULL, NULL, NULL, NULL, 0);
    SAYS_SO(tsr_index_select, NULL, NULL, NULL, 0, NULL);
    SAYS_SO(tsr_index_select_grad, NULL, NULL, NULL, 0, NULL, false);
    SAYS_SO(tsr_norm, NULL, NULL, NULL, NULL, NULL, TSR_NORM_LAYER, 0);
    SAYS_SO(tsr_norm_grad, NULL, NULL, NULL, NULL, NULL, NULL, NULL, TSR_NORM_LAYER, 0, false);
    SAYS_SO(tsr_softmax, NULL, NULL, NULL, false);
    SAYS_SO(tsr_softmax_grad, NULL, NULL, NULL, NULL, false);
    SAYS_SO(tsr_cross_entropy, NULL, NULL, NULL, NULL, NULL, 0);
    SAYS_SO(tsr_sgd_step, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_adamw_step, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_random_uniform, NULL, NULL, 0, 0, NULL);
    SAYS_SO(tsr_random_normal, NULL, NULL, 0, 0, NULL);
    SAYS_SO(tsr_dropout, NULL, NULL, NULL, 0, NULL);
    SAYS_SO(tsr_rope_create, NULL, NULL, NULL);
    SAYS_SO(tsr_kv_cache_create, NULL, NULL);
    SAYS_SO(tsr_kv_cache_add, NULL, -1, NULL);
    SAYS_SO(tsr_kv_cache_truncate, NULL, 0, 0);
    SAYS_SO(tsr_kv_cache_remove, NULL, 0);
    SAYS_SO(tsr_kv_cache_begin, NULL, 0, NULL, NULL, NULL);
    SAYS_SO(tsr_kv_cache_append, NULL, 0, NULL, NULL);
    SAYS_SO(tsr_kv_cache_attention, NULL, 0, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_rope_apply, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_rope_grad, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_attention, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_attention_grad, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_matmul, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr__tuning_inspect, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr__tuning_candidate, NULL, NULL, NULL, NULL, NULL, 0, NULL);
    SAYS_SO(tsr__tuning_matmul, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr__tuning_set, NULL, NULL, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr__tuning_save, NULL);
    SAYS_SO(tsr__tuning_path, NULL, NULL, 0);
    SAYS_SO(tsr__tuning_find, NULL, NULL);
    SAYS_SO(tsr__self_tests_find, NULL, NULL);
    ck_assert_int_eq(tsr__tuning_count(NULL), 0);
    SAYS_SO(tsr_kernel_create, NULL, NULL, NULL);
    SAYS_SO(tsr_kernel_run, NULL, NULL, NULL, NULL, NULL);
}
END_TEST

START_TEST(groups_and_layers_are_unsupported)
{
    SAYS_SO(tsr_group_create, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_group_all_reduce, NULL, NULL, TSR_OP_SUM, NULL, NULL);
    SAYS_SO(tsr_group_broadcast, NULL, NULL, 0, NULL);
    SAYS_SO(tsr_group_all_gather, NULL, NULL, NULL, 0, NULL, NULL);
    SAYS_SO(tsr_group_reduce_scatter, NULL, NULL, NULL, 0, TSR_OP_SUM, NULL, NULL);
    SAYS_SO(tsr_group_get_stats, NULL, NULL);
    SAYS_SO(tsr_layer_forward, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_layer_backward, NULL, NULL, NULL, NULL);
    SAYS_SO(tsr_layer_find_parameter, NULL, NULL, NULL);
    SAYS_SO(tsr_layer_set_parameter, NULL, 0, NULL, NULL, false);
    SAYS_SO(tsr_layer_gather_parameter, NULL, 0, NULL);
    SAYS_SO(tsr_column_linear_create, NULL, NULL);
    SAYS_SO(tsr_row_linear_create, NULL, NULL);
    SAYS_SO(tsr_linear_get_shard, NULL, NULL);
    SAYS_SO(tsr_mlp_create, NULL, NULL);
    SAYS_SO(tsr_norm_create, NULL, NULL);
    SAYS_SO(tsr_self_attention_create, NULL, NULL);
    SAYS_SO(tsr_self_attention_get_heads, NULL, NULL);
    SAYS_SO(tsr_block_create, NULL, NULL);
    SAYS_SO(tsr_block_set_dropout, NULL, 0, NULL);
    SAYS_SO(tsr_layer_forward_cached, NULL, NULL, NULL, 0, NULL);
    SAYS_SO(tsr_embedding_create, NULL, NULL);
    SAYS_SO(tsr_vocabulary_cross_entropy, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0);
    SAYS_SO(tsr_optimizer_create, NULL, NULL);
    SAYS_SO(tsr_optimizer_add_layer, NULL, NULL);
    SAYS_SO(tsr_optimizer_add_parameter, NULL, NULL);
    SAYS_SO(tsr_optimizer_add_fsdp, NULL, NULL);
    SAYS_SO(tsr_optimizer_step, NULL, 0);
    SAYS_SO(tsr_optimizer_clip, NULL, 1, NULL, NULL);
    SAYS_SO(tsr_optimizer_norm, NULL, NULL);
    SAYS_SO(tsr_optimizer_zero_grad, NULL);
    SAYS_SO(tsr_optimizer_changed, NULL);
    SAYS_SO(tsr_optimizer_save, NULL, NULL, NULL);
    SAYS_SO(tsr_optimizer_load, NULL, NULL, NULL);
    ck_assert_int_eq(tsr_optimizer_steps(NULL), 0);
    ck_assert_int_eq(tsr_group_size(NULL), 1);
    ck_assert_ptr_null(tsr_group_default());
    ck_assert_int_eq(tsr_layer_parameter_count(NULL), 0);
}
END_TEST

/* Outputs are written only on success. */
START_TEST(outputs_stay)
{
    tsr_device *device = (tsr_device *)&device;
    tsr_device_list *list = (tsr_device_list *)&list;
    ck_assert_int_eq(tsr_device_open(NULL, &device), TSR_ERR_UNSUPPORTED);
    ck_assert_ptr_eq(device, (tsr_device *)&device);
    ck_assert_int_eq(tsr_device_list_create(&list), TSR_ERR_UNSUPPORTED);
    ck_assert_ptr_eq(list, (tsr_device_list *)&list);
}
END_TEST

START_TEST(destroying_sets_null)
{
    tsr_device *device = (tsr_device *)&device;
    tsr_stream *stream = (tsr_stream *)&stream;
    tsr_tensor *tensor = (tsr_tensor *)&tensor;
    tsr_kernel *kernel = (tsr_kernel *)&kernel;
    tsr_device_close(&device);
    tsr_stream_destroy(&stream);
    tsr_tensor_destroy(&tensor);
    tsr_kernel_destroy(&kernel);
    ck_assert_ptr_null(device);
    ck_assert_ptr_null(stream);
    ck_assert_ptr_null(tensor);
    ck_assert_ptr_null(kernel);
    tsr_device_close(NULL);
    tsr_stream_destroy(NULL);
    tsr_tensor_destroy(NULL);
    tsr_kernel_destroy(NULL);

    tsr_device_list *list = (tsr_device_list *)&list;
    tsr_device_list_destroy(&list);
    ck_assert_ptr_null(list);
    tsr_device_list_destroy(NULL);
}
END_TEST

START_TEST(getters_give_nothing)
{
    uint64_t allocated = 1, used = 1;
    ck_assert_ptr_null(tsr_device_get_info(NULL));
    ck_assert_ptr_null(tsr_device_heap(NULL, 0));
    ck_assert_ptr_null(tsr_device_coopmat_shape(NULL, 0));
    ck_assert_ptr_null(tsr_stream_device(NULL));
    ck_assert_ptr_null(tsr_tensor_layout(NULL));
    tsr_device_memory_usage(NULL, &allocated, &used);
    ck_assert_uint_eq(allocated, 0);
    ck_assert_uint_eq(used, 0);
    tsr_device_memory_usage(NULL, NULL, NULL);
}
END_TEST

/* Modules that need no GPU work. */
START_TEST(layouts_work)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (const int64_t[]){3, 4}, &layout));
    ck_assert_int_eq(tsr_layout_count(&layout), 12);
}
END_TEST

TESTS(stub)
{
    tcase_add_test(tests, everything_is_unsupported);
    tcase_add_test(tests, groups_and_layers_are_unsupported);
    tcase_add_test(tests, outputs_stay);
    tcase_add_test(tests, destroying_sets_null);
    tcase_add_test(tests, getters_give_nothing);
    tcase_add_test(tests, layouts_work);
}
