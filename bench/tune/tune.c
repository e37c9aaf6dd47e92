#include "bench/tune/tune.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/clock.h"
#include "cli/lib/memory.h"

/* The products whose classes are tuned by default. They are squares; then the layers of a
 * transformer with one token, with a few, with a prompt and with a batch; then the products of
 * attention. In each group small products come first, because kernels that are far slower on a
 * small product are not tried on larger ones. */
static const struct {
    int64_t batch;
    bench_shape shape;
} usual_products[] = {
    {0, {8, 8, 8}},          {0, {16, 16, 16}},       {0, {32, 32, 32}},
    {0, {64, 64, 64}},       {0, {128, 128, 128}},    {0, {256, 256, 256}},
    {0, {512, 512, 512}},    {0, {1024, 1024, 1024}}, {0, {2048, 2048, 2048}},
    {0, {4096, 4096, 4096}}, {0, {1, 4096, 4096}},    {0, {1, 4096, 11008}},
    {0, {16, 4096, 4096}},   {0, {16, 4096, 11008}},  {0, {128, 4096, 4096}},
    {0, {512, 1024, 4096}},  {0, {512, 4096, 4096}},  {32, {128, 64, 128}},
    {32, {128, 128, 64}},    {32, {1, 128, 512}},
};
#define USUAL_PRODUCTS ((int)(sizeof usual_products / sizeof *usual_products))

static const tsr_dtype all_dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};

typedef struct plan {
    const bench_options *options;
    int dtype_count, shape_count;
} plan;

static plan make_plan(const bench_options *options)
{
    return (plan){.options = options,
                  .dtype_count = options->dtype_count > 0 ? options->dtype_count : 3,
                  .shape_count = options->shape_count > 0 ? options->shape_count : USUAL_PRODUCTS};
}

static int product_count(const plan *p)
{
    return p->dtype_count * 2 * p->shape_count;
}

/* Returns the product at a place in the order of measurements: one dtype after another, and for
 * each x·wᵀ before x·w. */
static tune_product product_at(const plan *p, int place)
{
    const bench_options *options = p->options;
    int which = place % p->shape_count, layout = place / p->shape_count % 2;
    int dtype = place / p->shape_count / 2;
    tune_product product = {.dtype = options->dtype_count > 0 ? options->dtypes[dtype]
                                                              : all_dtypes[dtype],
                            .transposed = layout == 0};
    if (options->shape_count > 0) {
        product.shape = options->shapes[which];
    } else {
        product.batch = usual_products[which].batch;
        product.shape = usual_products[which].shape;
    }
    return product;
}

static void leave_out(bench_context *context, const char *format, ...) CLI_PRINTF(2, 3);
static void leave_out(bench_context *context, const char *format, ...)
{
    bench_notes *notes = &context->left_out;
    notes->all = cli_resize(notes->all, (size_t)notes->count + 1, sizeof *notes->all);
    bench_note *added = &notes->all[notes->count++];
    *added = (bench_note){.benchmark = "tune",
                          .device_place = context->info != NULL ? context->device_count - 1 : -1};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(added->text, sizeof added->text, format, arguments);
    va_end(arguments);
}

/* Each result is stored at once, so that it is kept if the run is interrupted. */
static bool tune_product_at(bench_context *context, const tune_product *product,
                            tune_given_up *given_up, tune_report *report)
{
    char text[128], doing[160], reason[TUNE_REASON];
    tune_result result;
    tune_product_text(product, text, sizeof text);
    bench_progress_step(&context->progress, context->info->name);
    snprintf(doing, sizeof doing, "tuning %s", text);
    bench_progress_show(&context->progress, doing);
    if (!tune_search(context, product, given_up, &result, reason))
        return false;
    if (reason[0] != '\0') {
        leave_out(context, "%s: %s", text, reason);
        return true;
    }
    BENCH_TRY(context, tsr__tuning_save(context->device));
    report->results =
        cli_resize(report->results, (size_t)report->result_count + 1, sizeof *report->results);
    report->results[report->result_count++] = result;
    return true;
}

static bool tune_device_now(bench_context *context, const plan *p, tune_report *report)
{
    tune_given_up given_up = {0};
    tune_device device = {.device_place = context->device_count - 1};
    double start = bench_now_ns();
    BENCH_TRY(context, tsr__tuning_path(context->device, device.path, sizeof device.path));
    /* Stores the present tuning before anything is measured, so that a run that could not store its
     * results fails at once. */
    BENCH_TRY(context, tsr__tuning_save(context->device));
    bool done = true;
    for (int i = 0; i < product_count(p) && done; i++) {
        tune_product product = product_at(p, i);
        done = tune_product_at(context, &product, &given_up, report);
    }
    free(given_up.all);
    device.seconds = (bench_now_ns() - start) / 1e9;
    report->devices =
        cli_resize(report->devices, (size_t)report->device_count + 1, sizeof *report->devices);
    report->devices[report->device_count++] = device;
    return done;
}

static bool tune_listed(bench_context *context, const tsr_device_info *info, const plan *p,
                        tune_report *report)
{
    char index[16];
    snprintf(index, sizeof index, "%d", info->index);
    if (!info->usable) {
        leave_out(context, "%s cannot be used: %s", info->name, info->unusable_reason);
        context->progress.steps -= product_count(p);
        return true;
    }
    bool done = bench_open_device(context, index) && tune_device_now(context, p, report);
    bench_close_device(context);
    return done;
}

bool bench_tune(bench_context *context, tune_report *out)
{
    plan p = make_plan(context->options);
    *out = (tune_report){0};
    context->progress.steps = product_count(&p);
    if (context->options->device != NULL)
        return bench_open_device(context, context->options->device) &&
               tune_device_now(context, &p, out);
    tsr_device_list *list = NULL;
    BENCH_TRY(context, tsr_device_list_create(&list));
    bool done = list->count > 0 || bench_fail(context, "there is no Vulkan driver on this machine");
    context->progress.steps = list->count * product_count(&p);
    for (int i = 0; i < list->count && done; i++)
        done = tune_listed(context, list->devices[i], &p, out);
    tsr_device_list_destroy(&list);
    return done;
}

void bench_tune_finish(tune_report *report)
{
    free(report->devices);
    free(report->results);
    *report = (tune_report){0};
}
