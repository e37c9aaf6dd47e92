/* Runs the feed-forward block of a transformer at a real model's sizes, with weights from a
 * safetensors file, divided over the ranks of a job. Prints its speed and the difference from one
 * process's result.
 *
 *     feedforward --generate block.safetensors --dtype f16
 *     tessera launch -n 2 -- feedforward block.safetensors --tokens 512
 *
 *     y = (silu(x · gateᵀ) ⊙ (x · upᵀ)) · downᵀ
 *
 * gate and up are divided by rows, down by columns (Shoeybi et al., "Megatron-LM", 2019), so one
 * all-reduce adds the ranks' results. Each rank only reads its part of the file.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block.h"
#include "common/common.h"
#include "options.h"

typedef struct place {
    tsr_comm *comm;
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *group, *alone; /* of all ranks; of this rank only, for the result to compare with */
    char problem[BLOCK_PROBLEM]; /* what is wrong with the file; "" if tsr_last_error() has the
                                    error instead */
} place;

static tsr_status place_init(place *self, const feedforward_options *options)
{
    TRY(tsr_comm_create(NULL, &self->comm));
    TRY(tsr_device_open(tsr_device_params(.device = options->device), &self->device));
    TRY(tsr_stream_create(self->device, &self->stream));
    TRY(tsr_group_create(self->comm, self->stream, NULL, &self->group));
    return tsr_group_create(NULL, self->stream, NULL, &self->alone);
}

static void place_finish(place *self)
{
    tsr_group_destroy(&self->alone);
    tsr_group_destroy(&self->group);
    tsr_stream_destroy(&self->stream);
    tsr_device_close(&self->device);
    tsr_comm_destroy(&self->comm);
}

/* Creates the same tokens on every rank. */
static tsr_status create_tokens(const place *self, const block_sizes *sizes, int tokens,
                                tsr_tensor **out)
{
    const tsr_random_params random = {.struct_size = sizeof random, .seed = 1};
    TRY(tsr_tensor_create(self->device, sizes->dtype, 2, (int64_t[]){tokens, sizes->width}, out));
    return tsr_random_normal(self->stream, *out, 0, 1, &random);
}

/* Runs one forward pass and waits for it. */
static tsr_status pass(const place *self, tsr_layer *layer, const tsr_tensor *x, tsr_tensor **y)
{
    TRY(tsr_layer_forward(layer, x, NULL, y));
    tsr_status status = tsr_stream_wait(self->stream);
    if (status != TSR_OK)
        tsr_tensor_destroy(y);
    return status;
}

typedef struct figures {
    double seconds;               /* the median time of a forward pass */
    double communication_seconds; /* the mean time of a pass that this rank waited for others */
    /* the largest difference from one process's result, and that result's largest magnitude */
    double error, scale;
} figures;

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tsr_status measure(const place *self, tsr_layer *layer, const tsr_tensor *x, int runs,
                          figures *out)
{
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    double *seconds = malloc((size_t)runs * sizeof *seconds);
    if (!seconds)
        return TSR_ERR_NO_MEMORY;
    tsr_group_reset_stats(self->group);
    tsr_status status = TSR_OK;
    for (int i = 0; i < runs && status == TSR_OK; i++) {
        tsr_tensor *y = NULL;
        status = tsr_comm_barrier(self->comm, NULL);
        double start = seconds_now();
        if (status == TSR_OK)
            status = pass(self, layer, x, &y);
        seconds[i] = seconds_now() - start;
        tsr_tensor_destroy(&y);
    }
    if (status == TSR_OK)
        status = tsr_group_get_stats(self->group, &stats);
    if (status == TSR_OK) {
        qsort(seconds, (size_t)runs, sizeof *seconds, compare_doubles);
        out->seconds = (seconds[(runs - 1) / 2] + seconds[runs / 2]) / 2;
        out->communication_seconds = (double)stats.transport_ns * 1e-9 / runs;
    }
    free(seconds);
    return status;
}

/* Downloads y as f32 to memory that the caller must free. */
static tsr_status download(const place *self, const tsr_tensor *y, float **out)
{
    const tsr_layout *layout = tsr_tensor_layout(y);
    uint64_t bytes = (uint64_t)(layout->shape[0] * layout->shape[1]) * sizeof(float);
    tsr_tensor *wide = NULL;
    float *values = malloc(bytes);
    if (!values)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr_tensor_create(self->device, TSR_F32, 2, layout->shape, &wide);
    if (status == TSR_OK)
        status = tsr_copy(self->stream, wide, y);
    if (status == TSR_OK)
        status = tsr_tensor_download(self->stream, wide, values, bytes);
    tsr_tensor_destroy(&wide);
    if (status == TSR_OK)
        *out = values;
    else
        free(values);
    return status;
}

static void compare(const float *got, const float *want, int64_t count, figures *out)
{
    for (int64_t i = 0; i < count; i++) {
        double error = fabs((double)got[i] - (double)want[i]);
        /* A NaN becomes the error and stays it, because no number is larger than NaN. */
        if (isnan(error) || error > out->error)
            out->error = error;
        out->scale = fmax(out->scale, fabs((double)want[i]));
    }
}

/* On rank 0, computes the complete result without other ranks and compares y with it. */
static tsr_status check(const place *self, const feedforward_options *options,
                        const block_sizes *sizes, const tsr_tensor *x, const tsr_tensor *y,
                        figures *out)
{
    tsr_layer *whole = NULL;
    tsr_tensor *expected = NULL;
    float *got = NULL, *want = NULL;
    tsr_status status = block_create(self->alone, sizes, &whole);
    if (status == TSR_OK)
        status = block_load(whole, sizes, options->file, NULL);
    if (status == TSR_OK)
        status = pass(self, whole, x, &expected);
    if (status == TSR_OK)
        status = download(self, y, &got);
    if (status == TSR_OK)
        status = download(self, expected, &want);
    if (status == TSR_OK)
        compare(got, want, (int64_t)options->tokens * sizes->width, out);
    free(got);
    free(want);
    tsr_tensor_destroy(&expected);
    tsr_layer_destroy(&whole);
    return status;
}

static void print_setting(const place *self, const feedforward_options *options,
                          const block_sizes *sizes)
{
    const tsr_device_info *info = tsr_device_get_info(self->device);
    printf("device        %s; %s %s\n", info->name, info->driver_name, info->driver_info);
    printf("block         %lld → %lld → %lld, gated, %s, from %s\n", (long long)sizes->width,
           (long long)sizes->hidden, (long long)sizes->width, tsr_dtype_name(sizes->dtype),
           options->file);
    printf("ranks         %d, %d tokens in a pass\n", tsr_comm_size(self->comm), options->tokens);
}

/* Returns whether rounding can explain the largest difference from one process's result: with f16
 * and bf16, the ranks' partial sums are rounded before they are added. */
static bool is_close(const block_sizes *sizes, const figures *f)
{
    double epsilon = sizes->dtype == TSR_F32 ? 0x1p-24 : sizes->dtype == TSR_F16 ? 0x1p-11 : 0x1p-8;
    return f->error <= f->scale * epsilon * (sizes->dtype == TSR_F32 ? 64 : 4);
}

static bool print_figures(const feedforward_options *options, const block_sizes *sizes,
                          const figures *f)
{
    double flops = 6.0 * options->tokens * (double)sizes->width * (double)sizes->hidden;
    bool close = is_close(sizes, f);
    printf("speed         %.1f tokens/s, %.1f GFLOP/s (a pass: %.1f ms, median of %d)\n",
           options->tokens / f->seconds, flops / f->seconds * 1e-9, f->seconds * 1e3,
           options->runs);
    printf("of that time  %.1f %% waiting for other ranks (%.2f ms), %.1f %% computing\n",
           100 * f->communication_seconds / f->seconds, f->communication_seconds * 1e3,
           100 * (1 - f->communication_seconds / f->seconds));
    printf("one process   largest difference %.2e of %.3g: %s\n", f->error, f->scale,
           close ? "ok" : "WRONG");
    return close;
}

static tsr_status run(place *self, const feedforward_options *options, bool *good)
{
    block_sizes sizes;
    tsr_layer *layer = NULL;
    tsr_tensor *x = NULL, *y = NULL;
    figures f = {0};
    bool first = tsr_comm_rank(self->comm) == 0;
    TRY(block_read_sizes(options->file, &sizes, self->problem));
    tsr_status status = block_create(self->group, &sizes, &layer);
    if (status == TSR_OK)
        status = block_load(layer, &sizes, options->file, self->comm);
    if (status == TSR_OK)
        status = create_tokens(self, &sizes, options->tokens, &x);
    if (status == TSR_OK)
        status = pass(self, layer, x, &y);
    if (status == TSR_OK && first)
        print_setting(self, options, &sizes);
    if (status == TSR_OK)
        status = measure(self, layer, x, options->runs, &f);
    tsr_layer_destroy(&layer);
    if (status == TSR_OK && first)
        status = check(self, options, &sizes, x, y, &f);
    if (status == TSR_OK && first)
        *good = print_figures(options, &sizes, &f);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    return status;
}

static tsr_status generate(place *self, const feedforward_options *options)
{
    const block_sizes sizes = {
        .width = options->width, .hidden = options->hidden, .dtype = options->dtype};
    tsr_layer *layer = NULL;
    TRY(block_create(self->group, &sizes, &layer));
    tsr_status status = block_save(layer, options->file, self->comm);
    tsr_layer_destroy(&layer);
    if (status == TSR_OK && tsr_comm_rank(self->comm) == 0)
        printf("%s: %lld → %lld → %lld, %s\n", options->file, (long long)sizes.width,
               (long long)sizes.hidden, (long long)sizes.width, tsr_dtype_name(sizes.dtype));
    return status;
}

int main(int argc, char **argv)
{
    feedforward_options options;
    place self = {0};
    bool good = true;
    if (!feedforward_options_parse(argc, argv, &options))
        return 2;
    if (options.help) {
        feedforward_options_help();
        return checked_output("feedforward", 0);
    }
    tsr_status status = place_init(&self, &options);
    if (status == TSR_OK)
        status = options.generate ? generate(&self, &options) : run(&self, &options, &good);
    if (status != TSR_OK)
        fprintf(stderr, "feedforward: %s\n",
                *self.problem       ? self.problem
                : *tsr_last_error() ? tsr_last_error()
                                    : tsr_status_name(status));
    place_finish(&self);
    return checked_output("feedforward", status != TSR_OK || !good);
}
