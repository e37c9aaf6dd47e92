/* Trains a network to separate two spirals. `tessera launch -n 2 -- hello_train` divides it. */
#include <math.h>
#include <stdio.h>
#include <tessera/tessera.h>
#define POINTS 256
int main(void)
{
    float points[POINTS][2], loss = 0;
    int32_t labels[POINTS];
    for (int i = 0; i < POINTS; i++) { /* every second point is on the other spiral */
        float r = 0.2f + 2.8f * (float)i / POINTS, angle = 2 * r + 3.14f * (float)(i % 2);
        points[i][0] = r * cosf(angle), points[i][1] = r * sinf(angle);
        labels[i] = i % 2;
    }
    tsr_comm *comm = NULL; /* the processes of the job: one, if it was not launched */
    tsr_device *gpu = NULL;
    tsr_stream *stream = NULL; /* the device does what is recorded here, in order */
    tsr_group *group = NULL;   /* the processes, and this one's stream */
    tsr_layer *mlp = NULL;
    tsr_layer_saved *saved = NULL; /* what the backward pass needs of the forward pass */
    tsr_optimizer *adamw = NULL;
    tsr_tensor *x = NULL, *y = NULL, *classes = NULL, *losses = NULL, *mean = NULL;
    int failed = tsr_comm_create(NULL, &comm) || tsr_device_open(NULL, &gpu) ||
                 tsr_stream_create(gpu, &stream) || tsr_group_create(comm, stream, NULL, &group) ||
                 tsr_mlp_create(tsr_mlp_params(.group = group, .input_size = 2, .hidden_size = 64,
                                               .output_size = 2, .activation = TSR_ACT_GELU_TANH,
                                               .bias = true),
                                &mlp) ||
                 tsr_optimizer_create(tsr_optimizer_params(.stream = stream), &adamw) ||
                 tsr_optimizer_add_layer(adamw, mlp) ||
                 tsr_tensor_create(gpu, TSR_F32, 2, (int64_t[]){POINTS, 2}, &x) ||
                 tsr_tensor_create(gpu, TSR_I32, 1, (int64_t[]){POINTS}, &classes) ||
                 tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){POINTS}, &losses) ||
                 tsr_tensor_create(gpu, TSR_F32, 0, NULL, &mean) ||
                 tsr_tensor_upload(stream, x, points, sizeof points) ||
                 tsr_tensor_upload(stream, classes, labels, sizeof labels);
    for (int step = 0; step <= 400 && !failed; step++) { /* cross-entropy turns y into dy */
        failed = tsr_optimizer_zero_grad(adamw) || tsr_layer_forward(mlp, x, &saved, &y) ||
                 tsr_cross_entropy(stream, losses, y, y, classes, 1.0f / POINTS) ||
                 tsr_layer_backward(mlp, saved, y, NULL) || tsr_optimizer_step(adamw, 0.02f) ||
                 tsr_reduce(stream, mean, losses, 0, TSR_REDUCE_MEAN, false) ||
                 tsr_tensor_download(stream, mean, &loss, sizeof loss);
        if (step % 50 == 0 && !failed && tsr_comm_rank(comm) == 0)
            printf("step %3d  loss %.4f\n", step, (double)loss);
        tsr_layer_saved_destroy(&saved);
        tsr_tensor_destroy(&y);
    }
    fprintf(stderr, "%s\n", failed ? tsr_last_error() : "done");
    tsr_tensor_destroy(&mean);
    tsr_tensor_destroy(&losses);
    tsr_tensor_destroy(&classes);
    tsr_tensor_destroy(&x);
    tsr_optimizer_destroy(&adamw);
    tsr_layer_destroy(&mlp);
    tsr_group_destroy(&group);
    tsr_stream_destroy(&stream);
    tsr_device_close(&gpu);
    tsr_comm_destroy(&comm);
    return failed || fflush(stdout) != 0;
}
