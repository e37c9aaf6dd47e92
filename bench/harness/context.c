/* The state of a run: its devices, its rows, and what was left out. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/harness/bench.h"
#include "cli/lib/memory.h"
#include "tool_seam.h"

void bench_use_device(bench_context *context)
{
    /* A copy, which outlives the device. */
    tsr__device_facts *facts = cli_alloc(1, sizeof *facts);
    *facts = *tsr__facts_of(tsr_device_get_info(context->device));
    tsr__facts_connect(facts);
    tsr_device_info *info = &facts->info;
    context->devices =
        cli_resize(context->devices, (size_t)context->device_count + 1, sizeof(tsr_device_info *));
    context->devices[context->device_count++] = info;
    context->info = info;
    context->fma_peak = context->fma_peak_f16 = context->coopmat_peak = NULL;
    context->device_copy = context->memory_stream = NULL;
}

bool bench_open_device(bench_context *context, const char *which)
{
    bench_close_device(context);
    BENCH_TRY(context, tsr_device_open(tsr_device_params(.device = which), &context->device));
    bench_use_device(context);
    BENCH_TRY(context, tsr_stream_create(context->device, &context->stream));
    return true;
}

void bench_close_device(bench_context *context)
{
    tsr_stream_destroy(&context->stream);
    tsr_device_close(&context->device);
    context->info = NULL;
}

static void leave_out(bench_context *context, const char *benchmark, const char *format,
                      va_list arguments)
{
    bench_notes *notes = &context->left_out;
    notes->all = cli_resize(notes->all, (size_t)notes->count + 1, sizeof *notes->all);
    bench_note *note = &notes->all[notes->count++];
    *note = (bench_note){.benchmark = benchmark,
                         .device_place = context->info != NULL ? context->device_count - 1 : -1};
    vsnprintf(note->text, sizeof note->text, format, arguments);
}

void bench_leave_out(bench_context *context, const char *benchmark, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    leave_out(context, benchmark, format, arguments);
    va_end(arguments);
}

bool bench_worthwhile(bench_context *context, const char *benchmark, double ns, const char *format,
                      ...)
{
    const bench_options *options = context->options;
    if (!options->complete || ns <= options->seconds * 1e9)
        return true;
    va_list arguments;
    va_start(arguments, format);
    leave_out(context, benchmark, format, arguments);
    va_end(arguments);
    return false;
}

bool bench_bearable(bench_context *context, const char *benchmark, double ns, const char *format,
                    ...)
{
    const double most_seconds = 20;
    if (ns <= most_seconds * 1e9)
        return true;
    va_list arguments;
    va_start(arguments, format);
    leave_out(context, benchmark, format, arguments);
    va_end(arguments);
    return false;
}

static void free_row(bench_row *row)
{
    bench_samples_free(&row->host);
    bench_samples_free(&row->device);
    bench_samples_free(&row->peer);
    free(row);
}

static bool in_use(const bench_context *context, const bench_row *row)
{
    return row == context->fma_peak || row == context->fma_peak_f16 ||
           row == context->coopmat_peak || row == context->device_copy ||
           row == context->memory_stream || row == context->memcpy_peak;
}

void bench_drop_rows(bench_context *context, int first)
{
    int kept = first;
    for (int i = first; i < context->row_count; i++) {
        bench_row *row = context->rows[i];
        if (in_use(context, row))
            context->rows[kept++] = row;
        else
            free_row(row);
    }
    context->row_count = kept;
}

/* Returns true if one of the rows from `first` on is compared with `ceiling`. */
static bool is_used(const bench_context *context, int first, const bench_row *ceiling)
{
    for (int i = first; i < context->row_count; i++)
        if (context->rows[i]->arithmetic == ceiling || context->rows[i]->memory == ceiling)
            return true;
    return false;
}

bool bench_ceilings_again(bench_context *context, int first)
{
    for (int i = 0; i < context->row_count; i++) {
        bench_row *row = context->rows[i];
        if (row->again != NULL && is_used(context, first, row) && !row->again(context, row))
            return false;
    }
    return true;
}

bool bench_reports(const bench_context *context)
{
    return context->job == NULL || tsr_comm_rank(context->job) == 0;
}

void bench_finish(bench_context *context)
{
    bench_close_device(context);
    tsr_comm_destroy(&context->job);
    for (int i = 0; i < context->row_count; i++)
        free_row(context->rows[i]);
    for (int i = 0; i < context->device_count; i++)
        free(context->devices[i]);
    free(context->rows);
    free(context->devices);
    free(context->left_out.all);
    free(context->failures.all);
    *context = (bench_context){0};
}
