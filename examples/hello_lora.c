/* hello_lora MODEL FOLDER: trains an adapter until a model counts, saves, loads and merges it. */
#include <stdio.h>
#include <tessera/tessera.h>
#define TOKENS 32
static tsr_stack *stack;
static tsr_tensor *x, *labels, *loss;
/* Computes the loss; with an optimizer, it also makes a step. */
static int pass(tsr_stream *stream, tsr_optimizer *adamw, float *value)
{
    tsr_stack_saved *saved = NULL; /* what the backward pass needs of the forward pass */
    tsr_tensor *hidden = NULL, *dhidden = NULL;
    int failed = tsr_fill(stream, loss, 0) ||
                 tsr_stack_forward(stack, x, NULL, adamw ? &saved : NULL, &hidden) ||
                 tsr_stack_head_loss(
                     stack, hidden,
                     tsr_head_loss_params(.labels = labels, .loss = loss, .scale = 1.0f / TOKENS),
                     adamw ? &dhidden : NULL) ||
                 (adamw && (tsr_stack_backward(stack, saved, dhidden, NULL) ||
                            tsr_optimizer_step(adamw, 0.01f) || tsr_optimizer_zero_grad(adamw))) ||
                 tsr_tensor_download(stream, loss, value, sizeof *value);
    tsr_stack_saved_destroy(&saved);
    tsr_tensor_destroy(&hidden);
    tsr_tensor_destroy(&dhidden);
    return failed;
}
int main(int count, char **arguments)
{
    tsr_comm *comm = NULL;
    tsr_device *gpu = NULL;
    tsr_stream *stream = NULL;
    tsr_group *group = NULL;
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_lora *lora = NULL;
    tsr_optimizer *adamw = NULL;
    int32_t ids[TOKENS + 1];
    float before = 0, after = 0, again = 0, merged = 0;
    for (int i = 0; i <= TOKENS; i++)
        ids[i] = 2 + i;
    int failed = count != 3 || tsr_comm_create(NULL, &comm) || tsr_device_open(NULL, &gpu) ||
                 tsr_stream_create(gpu, &stream) || tsr_group_create(comm, stream, NULL, &group) ||
                 tsr_model_file_open(arguments[1], &file) ||
                 tsr_model_open(file, tsr_model_params(.group = group, .dtype = TSR_F32), &model) ||
                 tsr_tensor_create(gpu, TSR_I32, 2, (int64_t[]){1, TOKENS}, &x) ||
                 tsr_tensor_create(gpu, TSR_I32, 2, (int64_t[]){1, TOKENS}, &labels) ||
                 tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){1}, &loss) ||
                 tsr_tensor_upload(stream, x, ids, TOKENS * sizeof *ids) ||
                 tsr_tensor_upload(stream, labels, ids + 1, TOKENS * sizeof *ids);
    stack = tsr_model_stack(model);
    failed =
        failed ||
        tsr_lora_create(tsr_lora_params(.stack = stack, .rank = 8, .trainable = true), &lora) ||
        tsr_optimizer_create(tsr_optimizer_params(.stream = stream), &adamw) ||
        tsr_lora_add_to(lora, adamw) || pass(stream, NULL, &before);
    for (int step = 0; step < 20 && !failed; step++)
        failed = pass(stream, adamw, &again);
    failed = failed || pass(stream, NULL, &after) ||
             tsr_lora_save(lora, arguments[2], TSR_LORA_PEFT, NULL) ||
             tsr_comm_barrier(comm, NULL); /* the first rank has written the files */
    tsr_optimizer_destroy(&adamw);
    tsr_lora_destroy(&lora);
    failed = failed || tsr_lora_load(arguments[2], tsr_lora_params(.stack = stack), &lora) ||
             pass(stream, NULL, &again) || tsr_lora_merge(lora) || pass(stream, NULL, &merged);
    if (!failed && tsr_comm_rank(comm) == 0)
        printf("loss %.3f, trained %.3f, loaded %.3f, merged %.3f\n", (double)before, (double)after,
               (double)again, (double)merged);
    if (failed)
        fprintf(stderr, "%s\n", count != 3 ? "hello_lora MODEL FOLDER" : tsr_last_error());
    tsr_lora_destroy(&lora);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy((tsr_tensor **[]){&x, &labels, &loss}[i]);
    tsr_group_destroy(&group);
    tsr_stream_destroy(&stream);
    tsr_device_close(&gpu);
    tsr_comm_destroy(&comm);
    return failed || fflush(stdout) != 0;
}
