#include "bench/complete.h"

#include <stdio.h>
#include <string.h>

#include "bench/harness/can_open.h"
#include "cli/lib/memory.h"

typedef enum bench_site { ON_DEVICE, ON_HOST } bench_site;

static bool runs_on(const bench *what, bench_site where)
{
    return !what->alone && where == (what->host_only ? ON_HOST : ON_DEVICE);
}

static int count_benchmarks_on(bench_site where)
{
    int count = 0;
    for (int i = 0; bench_list[i] != NULL; i++)
        count += runs_on(bench_list[i], where);
    return count;
}

static void note(bench_notes *notes, const char *benchmark, int place, const char *text)
{
    notes->all = cli_resize(notes->all, (size_t)notes->count + 1, sizeof *notes->all);
    bench_note *added = &notes->all[notes->count++];
    *added = (bench_note){.benchmark = benchmark, .device_place = place};
    snprintf(added->text, sizeof added->text, "%.1023s", text);
}

static void run_benchmarks_on(bench_context *context, bench_site where)
{
    for (int i = 0; bench_list[i] != NULL; i++) {
        if (!runs_on(bench_list[i], where))
            continue;
        char text[64];
        int first = context->row_count;
        bench_progress_step(&context->progress, context->info != NULL ? context->info->name : "");
        snprintf(text, sizeof text, "measuring %s", bench_list[i]->name);
        bench_progress_show(&context->progress, text);
        if (!bench_list[i]->run(context) || !bench_ceilings_again(context, first)) {
            bench_drop_rows(context, first);
            note(&context->failures, bench_list[i]->name,
                 context->info != NULL ? context->device_count - 1 : -1, context->error);
        }
    }
}

static void run_device(bench_context *context, const tsr_device_info *info)
{
    char index[16], text[1024];
    snprintf(index, sizeof index, "%d", info->index);
    if (!info->usable) {
        snprintf(text, sizeof text, "%s cannot be used: %s", info->name, info->unusable_reason);
        note(&context->left_out, "device", -1, text);
        context->progress.steps -= count_benchmarks_on(ON_DEVICE);
    } else if (!bench_open_device(context, index)) {
        note(&context->failures, "device", -1, context->error);
        context->progress.steps -= count_benchmarks_on(ON_DEVICE);
    } else {
        run_benchmarks_on(context, ON_DEVICE);
    }
    bench_close_device(context);
}

static bool run_devices(bench_context *context)
{
    const char *chosen = context->options->device;
    if (chosen != NULL) {
        if (!bench_open_device(context, chosen))
            return false;
        run_benchmarks_on(context, ON_DEVICE);
        bench_close_device(context);
        return true;
    }
    tsr_device_list *list = NULL;
    /* Without Vulkan, the host is still measured. */
    if (tsr_device_list_create(&list) != TSR_OK)
        note(&context->left_out, "device", -1, tsr_last_error());
    else if (list->count == 0)
        note(&context->left_out, "device", -1, "there is no Vulkan driver on this machine");
    const int count = list ? list->count : 0;
    context->progress.steps += (count - 1) * count_benchmarks_on(ON_DEVICE);
    for (int i = 0; i < count; i++)
        run_device(context, list->devices[i]);
    tsr_device_list_destroy(&list);
    return true;
}

bool bench_complete(bench_context *context)
{
    const char *chosen = context->options->device;
    if (chosen != NULL && !bench_can_open(context, chosen))
        return false;
    /* The host is measured before any driver is loaded: memory that drivers allocate would be
     * included in the peak memory of processes that are started later. The number of devices is
     * therefore not known yet, and is assumed to be one, as on most machines. */
    context->progress.steps = count_benchmarks_on(ON_HOST) + count_benchmarks_on(ON_DEVICE);
    run_benchmarks_on(context, ON_HOST);
    return run_devices(context);
}
